"""Files of a run: written beside their place and moved there whole, so that a folder holds a run or nothing."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.records import TABLES
from sim.sweep import intact
from sim.writing import check_place

if TYPE_CHECKING:
    import pandas as pd

#: What a run's folder holds; `summary.json` comes last and marks the run as whole.
FILES = ("run.yaml", *(f"{name}.parquet" for name in TABLES), "steps.json", "summary.json")

_PARTIAL = ".kvplan-partial-"


class OutputError(OSError):
    """Results could not be written; its text is one line for the user."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "cannot write"


def check_free(out: Path, *, force: bool = False) -> None:
    """Make sure that a run may be written to `out`, before any work is done.

    Raises
    ------
    InputError
        `out` is a file, or a place where nothing may be written; or a folder that is not empty, unless it holds
        nothing but an earlier run and `force` is given.
    OutputError
        The disk is full or broken.
    """
    _check_place(out)
    if not out.exists():
        if out.is_symlink():
            raise InputError("the output folder is a link that leads nowhere", got=str(out))
        return
    if not out.is_dir():
        raise InputError("the output folder is a file", got=str(out))
    try:
        found = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith(_PARTIAL))
    except OSError as error:
        raise OutputError(_say(out, error)) from error
    strangers = [name for name in found if name not in FILES]
    if strangers:
        raise InputError(f"the output folder is not empty and {strangers[0]} is not part of a run", got=str(out))
    if found and not force:
        raise InputError("the output folder holds an earlier run; --force replaces it", got=str(out))


def _check_place(out: Path) -> None:
    try:
        check_place(out, field="--output", folder=True, make_parents=True)
    except OSError as error:
        raise OutputError(_say(out, error)) from error


@contextmanager
def writing(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a fresh folder to write a run's files to; afterwards they are moved to `out`.

    The fresh folder lies next to `out` (inside it, when `out` exists already), so that moving is renaming. On any
    error it is removed and `out` is as it was. Nothing but an earlier run's own files is ever replaced.

    Raises
    ------
    InputError
        See `check_free`.
    OutputError
        The file system refused: read-only, full, no permission.
    """
    check_free(out, force=force)
    exists = out.exists()
    partial = (out if exists else out.parent) / f"{_PARTIAL}{out.resolve().name}-{secrets.token_hex(4)}"
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    except OSError as error:
        raise OutputError(_say(out, error)) from error
    try:
        yield partial
        if exists:
            check_free(out, force=force)
            (out / "summary.json").unlink(missing_ok=True)
            for name in FILES:
                os.replace(partial / name, out / name)
        else:
            os.rename(partial, out)
    except OSError as error:
        raise error if isinstance(error, OutputError) else OutputError(_say(out, error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _say(out: Path, error: OSError) -> str:
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return f"cannot write to {out}: {' '.join(reason.split())}"


def write_json(path: Path, data: Any) -> None:
    """Write JSON that any reader takes: no NaN, no infinity."""
    path.write_text(json.dumps(plain(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def plain(data: Any) -> Any:
    """Return `data` with numpy numbers as Python's and numbers that JSON lacks as None."""
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if hasattr(data, "item"):
        data = data.item()
    if isinstance(data, float) and not abs(data) < float("inf"):
        return None
    return data


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table of a run's folder.

    Raises
    ------
    InputError
        It is missing, damaged or not a table of a run.
    """
    import pandas as pd

    intact.check_table(path, columns)
    try:
        return pd.read_parquet(path, columns=None if columns is None else list(columns))
    except (OSError, ValueError) as error:  # pyarrow's errors are among them
        raise InputError(intact.said(error), file=path) from None


def read_steps(folder: Path) -> dict[str, Any]:
    """Return the histograms of a run's folder.

    Raises
    ------
    InputError
        They are missing or damaged.
    """
    path = folder / "steps.json"
    try:
        steps = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(intact.said(error), file=path) from None
    intact.check_steps(steps, path)
    return dict(steps)


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a run's folder.

    Raises
    ------
    InputError
        The folder does not hold a run.
    """
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except NotADirectoryError:
        raise InputError("is a file; give the folder of a run", got=str(folder)) from None
    except FileNotFoundError:
        raise InputError("not a folder of a run: it has no summary.json", got=str(folder)) from None
    except (OSError, ValueError) as error:
        raise InputError(intact.said(error), file=path) from None
    intact.check_summary(summary, path)
    return dict(summary)
