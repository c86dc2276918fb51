"""Run the notebooks and keep their results: ``python notebooks/execute.py [NAME ...]``.

Everything that changes from run to run without meaning (execution times, versions, ids) is stripped, so that a
notebook whose results are the same has the same bytes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: Seconds a notebook may take.
LIMIT_S = 300


def notebooks() -> list[Path]:
    """Return the notebooks in order."""
    return sorted(HERE.glob("[0-9]*.ipynb"))


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of a fresh run.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3",
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    return stripped(notebook)


def stripped(notebook: Any) -> Any:
    """Remove what changes from run to run from a notebook, in place, and return it."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        cell.outputs = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        for output in cell.outputs:
            for kind, text in output.get("data", {}).items():
                if kind.startswith("text/") and isinstance(text, str):
                    output["data"][kind] = re.sub(r" at 0x[0-9a-f]+", "", text)
        if cell.cell_type != "code":
            del cell["outputs"]
    return notebook


def main(names: list[str]) -> None:
    """Execute notebooks in place."""
    import nbformat

    for path in [HERE / f"{name.removesuffix('.ipynb')}.ipynb" for name in names] or notebooks():
        nbformat.write(executed(path), path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
