"""A scenario's `vary:`: several runs side by side, with the same agents."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import sim
from sim.report import held, runs
from sim.sweep import variants

SMALL = """
name: small
seed: 3
replications: 3
duration: 4 min
warmup: 0
model: llama-3.1-8b
hardware: dgx-h100
replicas: 1
engine: {pool: 20 GB}
tiers: {dram: {capacity: 1 TiB}}
workload: {agents: coding-agent, arrivals: {closed: {concurrency: 6}}}
"""
POLICIES = "vary: {retention: [keep, release, {policy: drop}, offload, {policy: ttl, predictor: learned}, oracle]}\n"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[runs.Runs, Path]:
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(SMALL + POLICIES)
    made = runs.start(folder / "study.yaml", folder / "out", [], None, force=False)
    assert runs.draw(made)
    return made, folder / "out"


def test_every_value_is_run_with_the_same_agents(study: tuple[runs.Runs, Path]) -> None:
    made, out = study
    assert list(made.summaries) == ["keep", "release", "drop", "offload", "ttl", "oracle"]
    prompts = {name: sim.Result.load(out / str(name)).turns.query("first").set_index(["replication", "trajectory"])
               for name in made.summaries}
    known = prompts["keep"]["prompt_tokens"]
    for frame in prompts.values():
        both = frame["prompt_tokens"].index.intersection(known.index)
        assert len(both) > 5
        assert (frame["prompt_tokens"][both] == known[both]).all()


def test_what_pauses_hold_is_what_the_records_say(study: tuple[runs.Runs, Path]) -> None:
    made, out = study
    points = pd.DataFrame(made.points)
    assert len(points) == 6 * 3
    for name in ("keep", "drop"):
        result = sim.Result.load(out / name)
        whole = result.pauses["hold_hbm_byte_s"].sum() / 1e9
        pauses = result.pauses.groupby("replication").size().to_numpy()
        assert (points[points["value"] == name]["held_GB_s"].to_numpy() * pauses).sum() == pytest.approx(whole)
    assert points[points["value"] == "drop"]["held_GB_s"].max() == 0.0
    assert points[points["value"] == "keep"]["held_GB_s"].min() > 0.0


def test_many_runs_are_rows_and_leave_a_figure(study: tuple[runs.Runs, Path], capsys: pytest.CaptureFixture[str],
                                               ) -> None:
    made, out = study
    runs.show(made)
    printed = capsys.readouterr().out
    lines = [line.split()[0] for line in printed.splitlines() if line.split()]
    assert [line for line in lines if line in made.summaries] == list(made.summaries)
    assert all(header.split()[0] in printed for header in held.HEADERS)
    assert (out / "waits.png").stat().st_size > 10_000


def point(replication: int, p95_s: float) -> dict[str, float]:
    return {"replication": replication, "ttft_resumed_p50_s": 0.5, "ttft_resumed_p95_s": p95_s, "held_GB_s": 2.0}


def test_runs_are_compared_replication_by_replication(study: tuple[runs.Runs, Path]) -> None:
    """Agents differ from replication to replication by seconds; between the runs it is 0.1 s each time."""
    made, _ = study
    base = [point(number, p95_s) for number, p95_s in enumerate((1.0, 4.0, 10.0))]
    other = [point(number, p95_s - change) for number, p95_s, change in zip(
        range(3), (1.0, 4.0, 10.0), (0.09, 0.1, 0.11), strict=True)]
    cells = dict(zip(held.HEADERS, held.cells(made.summaries["drop"], other, base), strict=True))
    half_ms = 4.302653 * 10 / 3**0.5  # Student's t of two degrees of freedom, deviation 10 ms
    assert cells["p95 differs"] == f"-100±{round(half_ms, -1):.0f} ms"
    itself = dict(zip(held.HEADERS, held.cells(made.summaries["keep"], base, base), strict=True))
    assert itself["p95 differs"] == "-"
    assert itself["held"] == "2"


def test_the_figure_of_a_scenario_without_a_folder_is_named_after_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(SMALL + "vary: {retention: [keep, drop]}\n")
    short = ["duration=1 min", "replications=1"]
    made = runs.start(Path("study.yaml"), None, short, None, force=False)
    assert runs.draw(made)
    assert {path.name for path in tmp_path.iterdir()} == {"study.yaml", "small.png"}
    given = runs.start(Path("study.yaml"), None, short, "retention=keep,drop", force=False)
    assert not runs.draw(given)
    assert "±" not in "".join(cell for row in runs.rows(made) for cell in row)


def test_names_of_values_tell_them_apart() -> None:
    field, values = variants.named({"retention": ["keep", {"policy": "keep", "ttl": "5 s"}, {"policy": "drop"}]})
    assert field == "retention"
    assert list(values) == ['"keep"', '{"policy": "keep", "ttl": "5 s"}', "drop"]
    assert variants.named({"seed": [1, 2]}) == ("seed", {"1": "1", "2": "2"})


@pytest.mark.parametrize(("vary", "says"), [
    ("{retention: [keep, drop], seed: [1, 2]}", "names one field"),
    ("{retention: [keep]}", "needs at least two values"),
    ("{retention: [keep, keep]}", "has a value twice"),
])
def test_a_wrong_vary_is_one_line(vary: str, says: str) -> None:
    with pytest.raises(sim.InputError, match=says) as caught:
        sim.load(SMALL + f"vary: {vary}\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("vary", "says"), [
    ("parallelism.tp=1,3", "--vary parallelism.tp=3: parallelism.tp: must divide the 32 attention heads"),
    ("engine.block_size=16,x", "--vary engine.block_size=x: engine.block_size: expected a whole number (got x)"),
    ("tiers.dram.capacity=1 TiB,5 furlongs", "--vary tiers.dram.capacity=5 furlongs: tiers.dram.capacity: unknown"),
    ("duration=1h,1s", "warmup: must be shorter than the duration, 1 s, or nothing is left to measure (got 5 s); with "
                       "--vary duration=1s"),
])
def test_one_wrong_value_is_named_before_anything_runs(vary: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("warmup: 0", "warmup: 5"))
    with pytest.raises(sim.InputError) as wrong:
        runs.start(path, tmp_path / "out", [], vary, force=False)
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert not (tmp_path / "out").exists()
