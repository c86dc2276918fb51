"""Is a file or a name that no one could mean one line, for verbs that read other files than scenarios?"""

from __future__ import annotations

import pytest

from sim.cli import main


@pytest.mark.parametrize("content", [b"[" * 5000, b"a: 0x" + b"f" * 5000, b"\0\1", b""])
@pytest.mark.parametrize("verb", [["model", "import"], ["workload", "show"], ["workload", "stats"], ["check"]])
def test_a_file_of_nonsense_is_one_line(verb, content, tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as left:
        main([*verb, str(path)])
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (2, "")
    assert 1 <= said.err.count("\n") <= 4  # one a problem
    assert "Traceback" not in said.err


@pytest.mark.parametrize("arguments", [
    ["run", "x" * 5000], ["workload", "stats", "x" * 5000], ["report", "x" * 5000], ["bill", "x" * 5000],
    ["compare", "x" * 5000, "b"], ["new", ""], ["new", "x" * 5000],
])
def test_a_name_no_file_can_have_is_bad_input(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
