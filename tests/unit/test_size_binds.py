"""Does `size` name what its own table of reliefs shows, and say plainly where that is not clear?"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim.report import sizes, tables
from sim.sweep import relief
from sim.sweep.size_result import SizeResult

LEDGER = {"resource": "hbm_bandwidth", "why": "HBM reads set 90% of step time"}
ROWS = st.lists(st.fixed_dictionaries({"resource": st.sampled_from(list(relief.WORDS)), "gain": st.integers(0, 9),
                                       "clear": st.booleans()}),
                min_size=1, unique_by=lambda row: row["resource"])


def row(resource: str, answer: float, clear: bool, *, low: float | None = None, high: float | None = None,
        base: float = 30.0) -> dict:
    gain = abs(answer - base)
    return {"resource": resource, "what": relief.WORDS[resource], "buy": relief.BUY[resource], "factor": relief.FACTOR,
            "answer": answer, "low": low or answer, "high": high, "gain": gain, "change": gain / base, "clear": clear,
            "effects": [], "trials": 3}


def result(rows, answer=30.0, low=30.0, high=31.0, find="concurrency", **more) -> SizeResult:
    found = relief.binds(rows, LEDGER, answer=answer, low=low, high=high)
    unit = {"concurrency": "trajectories alive", "rate": "trajectories/s", "replicas": "replicas"}[find]
    made = SizeResult(
        find=find, field="", unit=unit, answer=answer, low=low, high=high, guess=30.0, binds=found.resource,
        binds_by=found.by, why=found.why, missed_beyond="ttft.p95 3 > 2 s", reliefs=rows, candidates=[
            {"value": 30.0, "verdict": "misses", "replications": 2, "why": "ttft.p95 3 > 2 s", "objectives": []}],
        simulations=2, simulations_in_all=2, seed=0, objectives=[], summary=None)
    return replace(made, **more)


def said(found: SizeResult) -> str:
    out = io.StringIO()
    console = tables.console()
    console.file, console.width = out, 200
    sizes.show(found, console)
    return out.getvalue()


@given(ROWS)
def test_what_is_named_is_never_what_the_table_contradicts(rows):
    rows = [found | {"what": relief.WORDS[found["resource"]]} for found in rows]
    found = relief.binds(rows, LEDGER, answer=30.0, low=30.0, high=31.0)
    moving = [row for row in rows if row["clear"] and row["gain"]]
    assert (found.resource is None) == (not moving)
    assert found.by == ("relief" if moving else "unclear")
    if moving:
        assert max(row["gain"] for row in moving) == next(
            row["gain"] for row in moving if row["resource"] == found.resource)
    assert not found.why or found.resource in (None, LEDGER["resource"])


def test_without_reliefs_the_ledgers_say():
    assert relief.binds([], LEDGER, answer=30.0, low=30.0, high=31.0) == ("hbm_bandwidth", "ledger", LEDGER["why"])


def test_why_it_is_unclear():
    still = [row(name, 30.0, False) for name in ("memory", "compute", "hbm_bandwidth")]
    assert "agents' own waits" in said(result(still))
    wide = said(result(still, low=20.0, high=44.0))
    assert "unclear: no relief moves the answer by more than its interval is wide" in wide
    maybe = said(result([*still[1:], row("memory", 33.0, False)]))
    assert "unclear: more of KV pool of a replica may help, but by no more than chance could" in maybe
    for text in (wide, maybe, said(result(still))):
        assert LEDGER["why"] not in text
        (line,) = [line for line in text.splitlines() if line.startswith("binds")]
        assert "HBM" not in line


def test_the_table_is_for_whoever_buys():
    rows = [row("dram", 30.0, False, high=31.0), row("memory", 33.0, True, low=32.0),
            row("hbm_bandwidth", 31.0, True, high=32.0)]
    text = said(result(rows))
    assert "30 trajectories alive meet the objectives\n" in text
    assert "30 surely meet them, 31 surely miss them" in text
    assert "25 % more moves the answer by +3 (+10%); so does more HBM bandwidth (+1 (+3%))" in text
    lines = [" ".join(line.split()) for line in text[text.index("25 % more of"):].splitlines()]
    assert f"KV pool of a replica 33 +3 (+10%) 32 or more {relief.BUY['memory']}" == lines[2]
    assert f"HBM bandwidth 31 +1 (+3%) 31 to 32 {relief.BUY['hbm_bandwidth']}" == lines[3]
    assert f"DRAM tier 30 none 30 to 31 {relief.BUY['dram']}" == lines[4]
    assert "?" not in text


def test_replicas_in_words():
    text = said(result([row("memory", 3.0, True, high=3.0, base=4.0)], answer=4.0, low=3.0, high=4.0, find="replicas"))
    assert "as few as 4 replicas meet the objectives" in text
    assert "3 may do, 4 surely do" in text
    assert "-1 (-25%)" in text
    none = said(result([], answer=None, low=9.0, high=None, find="replicas"))
    assert "no number of replicas tried meets the objectives" in none
    assert "no load" not in none
    assert "no load tried meets the objectives" in said(result([], answer=None, low=0.0, high=31.0))


def test_what_is_not_sure_is_said():
    text = said(result([], low=0.0, high=None))
    assert "30 trajectories alive meet the objectives, most likely" in text
    assert "of the loads tried, down to 30, none surely meets them, none surely misses them" in text
    assert "30 trajectories alive meet the objectives, most likely (9 surely)\n" in said(result([], low=9.0))
    few = said(result([], answer=4.0, low=3.0, high=6.0, find="replicas"))
    assert "as few as 4 replicas meet the objectives, most likely (6 surely)\n" in few


def test_every_relief_has_a_price():
    assert set(relief.BUY) == set(relief.WORDS)


def test_host_memory_that_nothing_writes_to_is_not_for_sale():
    base = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "workload": {"agents": "chat"},
            "tiers": {"dram": {"capacity": "1 TiB"}, "nvme": {"capacity": "10 TB"}}}
    for policy in ("keep", "release", "drop", "ttl"):
        assert not {"host_link", "dram", "nvme"} & set(relief.resources(sim.load(base | {"retention": policy})))
    for policy in ("offload", "tiered", "min_waste", "break_even", "oracle"):
        assert {"host_link", "dram", "nvme"} <= set(relief.resources(sim.load(base | {"retention": policy})))


@pytest.mark.parametrize(("duration", "short"), [("4 min", True), ("15 min", False)])
def test_a_search_on_runs_that_are_too_short_says_so(duration, short):
    found = sim.size(sim.load({
        "duration": duration, "warmup": 0, "model": "llama-3.1-8b", "hardware": "dgx-h100", "replicas": 1,
        "engine": {"pool": "2 GB"}, "workload": {
            "agents": {"prompt": [{"name": "p", "tokens": 3000}], "turns": 10, "output": 50, "observation": 50,
                       "tools": {"tool": {"wait": 60}}},
            "arrivals": {"closed": {"concurrency": 4}}}, "slo": {"ttft_resumed": {"p95": "200 ms"}}}),
        jobs=1, reliefs=False, most_replications=2)
    assert found.answer is not None
    assert found.data()["shorter_than_trajectories"] is short
    assert ("\ntoo short" in said(found)) is short
