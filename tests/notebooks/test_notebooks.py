"""Do the notebooks run from start to end, and are they kept as they should be?"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).parents[2] / "notebooks"
spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
execute = importlib.util.module_from_spec(spec)
spec.loader.exec_module(execute)
#: Those that need a GPU, or figures of one, say so themselves and still run.
NOTEBOOKS = execute.notebooks()


def figures(notebook):
    return sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path):
    notebook = execute.executed(path)
    assert figures(notebook) == figures(nbformat.read(path, as_version=4)) > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_with_its_results_and_nothing_else(path):
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.cells[0].source.splitlines()[0].endswith("?")  # it answers one question
    for cell in notebook.cells:
        assert not cell.metadata
        assert not any(output.output_type == "error" or output.get("name") == "stderr"
                       for output in cell.get("outputs", []))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert "import sim" in "\n".join(cell.source for cell in code).splitlines()
    assert "from sim." not in "\n".join(cell.source for cell in code)  # the public API is enough


def test_stripping_leaves_what_matters():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[
        nbformat.v4.new_output("stream", name="stderr", text="12 % done"),
        nbformat.v4.new_output("execute_result", data={"text/plain": "<Axes at 0x7f00ab>"}, execution_count=1)],
        metadata={"execution": {"iopub.status.busy": "now"}})])
    kept = execute.stripped(notebook).cells[0]
    assert kept.metadata == {}
    assert [output["data"]["text/plain"] for output in kept.outputs] == ["<Axes>"]
