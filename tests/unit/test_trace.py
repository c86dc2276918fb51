"""Is a trace valid Chrome-trace JSON: slices nested on their lanes, counters moving forward, streamed?"""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

import sim
from sim.cli import main
from sim.errors import InputError
from sim.report import trace_events
from sim.report.trace import trace

RUN = {"name": "traced", "seed": 5, "duration": 240, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100",
       "replicas": 2, "replications": 2, "engine": {"pool": "12 GiB"}, "tiers": {"dram": {"capacity": "64 GiB"}},
       "retention": "offload",
       "workload": {"agents": "deep-research", "arrivals": {"closed": {"concurrency": 24}}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run"
    sim.run(RUN, path)
    return path


@pytest.fixture(scope="module")
def events(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "trace.json"
    written = trace(folder, path, limit=None)
    found = json.loads(path.read_text())["traceEvents"]
    assert written.events == len(found)
    return found


def ns(event):
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event.get("dur", 0) * 1000)


def lanes(events):
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((*ns(event), event["name"]))
    return found


def test_every_event_is_of_a_known_kind_with_what_it_needs(events):
    for event in events:
        assert event["ph"] in "XCM"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_slices_nest_on_every_lane(events):
    found = lanes(events)
    assert len(found) > 50
    for slices in found.values():
        open_ends = []
        for begin, end, name in sorted(slices, key=lambda item: (item[0], -item[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], name
            open_ends.append(end)


def test_counters_move_forward_in_time(events):
    last = {}
    for event in events:
        if event["ph"] == "C":
            key = event["pid"], event["name"]
            assert event["ts"] >= last.get(key, 0)
            last[key] = event["ts"]
    assert {name for _, name in last} >= {"pool blocks", "turns decoding", "turns waiting", "host DRAM of the node",
                                          "trajectories alive", "GPU %", "host link busy %"}


def test_every_lane_and_process_has_a_name(events):
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert set(lanes(events)) == named
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"cluster", "replica 0", "replica 1"}


def test_turns_pauses_and_moves_are_all_there_and_of_one_replication(folder, events):
    result = sim.Result.load(folder)
    count = {table: int((getattr(result, table)["replication"] == 0).sum()) for table in ("turns", "pauses", "moves")}
    names = [name for slices in lanes(events).values() for _, _, name in slices]
    assert sum(name.startswith("turn ") for name in names) == count["turns"]
    assert sum(name.startswith("pause: ") for name in names) == count["pauses"]
    lane = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sum(len(slices) for key, slices in lanes(events).items() if lane[key].startswith("link")) == count["moves"]
    assert any("branch" in name for name in lane.values())


def test_a_turn_holds_its_parts_and_its_causes(folder, events):
    result = sim.Result.load(folder)
    turns = result.turns
    row = turns[(turns["replication"] == 0) & (turns["status"] == "finished") & (turns["reload_s"] > 0)].iloc[0]
    begin = round(row["ready_s"] * 1e9)
    turn = next(event for event in events if event["ph"] == "X" and event["name"] == f"turn {row['turn']}"
                and ns(event)[0] == begin)
    assert turn["args"]["prompt_tokens"] == row["prompt_tokens"]
    assert turn["args"]["reload_s"] == pytest.approx(row["reload_s"], abs=1e-6)
    inside = {event["name"] for event in events if event["ph"] == "X" and event["tid"] == turn["tid"]
              and event["pid"] == turn["pid"] and begin <= ns(event)[0] and ns(event)[1] <= ns(turn)[1]}
    assert {"reload", "prefill", "decode"} <= inside


def test_a_limit_draws_the_first_to_arrive(folder, tmp_path):
    written = trace(folder, tmp_path / "t.json", limit=5, replication=1)
    assert written.trajectories == 5
    assert written.left_out > 0
    assert written.events < trace(folder, tmp_path / "all.json", limit=0, replication=1).events


def test_rows_are_read_in_batches(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(trace_events, "BATCH", 7)
    trace(folder, tmp_path / "few.json")
    monkeypatch.undo()
    trace(folder, tmp_path / "many.json")
    assert (tmp_path / "few.json").read_bytes() == (tmp_path / "many.json").read_bytes()


def test_slices_that_would_overlap_take_a_lane_more():
    told = []
    made = trace_events._Lanes(lambda *what: told.append(what))
    first = made.place(2, ("link",), "link out", 0, 10, 1)
    second = made.place(2, ("link",), "link out", 5, 20, 1)
    assert first != second
    assert made.place(2, ("link",), "link out", 10, 15, 1) == first
    assert [name for _, _, name, _ in told] == ["link out", "link out (2)"]


def test_command_line(folder, tmp_path, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["trace", *arguments])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    status, out, err = run(str(folder), "--limit", "3")
    assert status == 0
    assert out.strip() == f"{folder.resolve()}.trace.json"
    assert "3 trajectories" in err
    assert run(str(folder), "--limit", "3")[0] == 0  # its own file is written anew
    (tmp_path / "mine.json").write_text("{}")
    assert run(str(folder), "-o", str(tmp_path / "mine.json"))[0] == 2
    assert (tmp_path / "mine.json").read_text() == "{}"
    status, _, err = run(str(folder), "--replication", "7")
    assert (status, "no such replication" in err) == (2, True)
    assert run(str(tmp_path))[0] == 2
    assert run(str(folder), "-o", str(tmp_path / "no" / "t.json"))[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_a_damaged_table_is_named(folder, tmp_path):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "turns.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(InputError, match=r"turns\.parquet: cannot be read"):
        trace(broken, tmp_path / "t.json")
    (broken / "turns.parquet").unlink()
    with pytest.raises(InputError, match=r"turns\.parquet: missing"):
        trace(broken, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()
