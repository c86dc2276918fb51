"""`kvplan report`: a run or a sweep as one HTML file that asks the network for nothing."""

from __future__ import annotations

from pathlib import Path

from sim.errors import InputError
from sim.report.html_page import Page, render
from sim.report.trace import target
from sim.sweep import intact, store
from sim.writing import whole_file


def report(folder: Path, output: Path | None = None) -> Path:
    """Write the report of a run or of a sweep and return the file.

    Parameters
    ----------
    folder
        Of the run, or of the sweep.
    output
        File to write; ``FOLDER.html`` next to the folder when left out.

    Raises
    ------
    InputError
        The folder holds neither, or what it holds is damaged; `output` is a file that kvplan did not write.
    OutputError
        The file system refused.
    """
    if not folder.is_dir():
        store.read_summary(folder)  # says what it is instead
    path = target(folder, output, ".html")
    made = render(page(folder))
    try:
        with whole_file(path) as partial:
            partial.write_text(made, encoding="utf-8")
    except OSError as error:
        raise store.OutputError(f"cannot write to {path}: {error.strerror or error}") from error
    return path


def page(folder: Path) -> Page:
    """Return the page of what a folder holds.

    Raises
    ------
    InputError
        It holds neither a run nor a sweep, or something in it is damaged.
    """
    import pyarrow as pa
    import yaml

    from sim.sweep.folder import MANIFEST

    try:
        if (folder / MANIFEST).is_file():
            from sim.report import html_sweep
            from sim.sweep.sweeping import SweepResult

            return html_sweep.page(SweepResult.load(folder), (folder / MANIFEST).read_text(encoding="utf-8"))
        from sim.report import html_run
        from sim.sweep.result import Result

        store.read_summary(folder)
        for table in html_run.TABLES:
            intact.check_table(folder / f"{table}.parquet")
        return html_run.page(Result.load(folder), (folder / "run.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError("missing", file=error.filename) from None
    except (pa.ArrowException, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"damaged: {' '.join(str(error).split())[:160]}", file=folder) from None
