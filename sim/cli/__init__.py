"""The command ``kvplan``: verbs only. Each says what it takes and hands over to the package."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from sim.cli.agents import workload
from sim.cli.catalogues import hardware, model
from sim.cli.results import bill, compare, report, trace
from sim.cli.running import run, size, sweep
from sim.cli.scenarios import check, explain, new
from sim.errors import InputError, shorten

__all__ = ["app", "main"]


def _version() -> str:
    from sim.sweep.provenance import compiled, version

    return f"{version()} (compiled)" if compiled() else version()


def version() -> None:
    """Print the version."""
    print(_version())


app = App(name="kvplan", version=_version, help_format="plaintext", result_action="return_value",
          suppress_keyboard_interrupt=False,
          help="How many agent trajectories a pool of accelerators holds, at which latency and cost.")
for verb in (new, check, explain, run, sweep, size, bill, compare, report, trace, version, hardware, model, workload):
    app.command(verb)
# By name: nothing of it is imported until it is asked for, and the simulator itself never needs it.
app.command("calibrate.app:app", name="calibrate", help="Measure a GPU, fit what was measured, show the error.")


def _fail(text: object, status: int) -> int:
    print(f"kvplan: {text}", file=sys.stderr)
    return status


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its status: 0 fine, 1 the run failed, 2 bad input, 130 interrupted."""
    status = 0
    try:
        status = app(arguments, exit_on_error=False, print_error=False) or 0
        sys.stdout.flush()
    except CycloptsError as error:
        status = _fail(error, 2)
    except InputError as error:
        print(error, file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader has gone (`kvplan ... | head`): nothing more to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        # A path that no file can have is the user's; whatever else the file system says is not.
        wrong = error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
        status = _fail(f"{error.strerror}: {shorten(str(error.filename))}", 2) if wrong else _fail(error, 1)
    raise SystemExit(status)
