"""Does each figure show what it is given, with units, on the axes it is given?"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import sim
from sim.records import POOL_USES
from sim.report import plots
from sim.report.plots import memory, runs, structures, style, sweeps, waits
from sim.report.plots.accessor import Plots

mpl.use("Agg")

RUN = {"name": "small", "seed": 3, "duration": 300, "warmup": 20, "model": "llama-3.1-8b", "hardware": "dgx-h100",
       "replicas": 2, "replications": 2, "engine": {"pool": "12 GiB"}, "tiers": {"dram": {"capacity": "64 GiB"}},
       "retention": "offload", "slo": {"ttft_resumed": {"p95": "2 s"}, "itl": {"p99": "50 ms"}},
       "workload": {"agents": "coding-agent", "arrivals": {"closed": {"concurrency": 16}}}}
NAMES = ("pool_use", "gpu_use", "occupancy", "link_use", "time_by_cause", "ttft", "itl", "pauses")


@pytest.fixture(scope="module")
def result():
    return sim.run(RUN)


@pytest.fixture
def ax():
    return style.figure()[1]


def texts(ax):
    """Return every text of a figure, by drawing it."""
    return style.svg(ax)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_of_a_run_draws_on_the_axes_given_and_labels_both(result, ax, name):
    drawn = getattr(result.plot, name)(ax)
    assert drawn is ax
    assert drawn.get_title(loc="left")
    assert drawn.get_xlabel()
    assert drawn.get_ylabel() or name == "time_by_cause"
    assert texts(drawn).startswith("<svg")


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_of_an_empty_run_draws_nothing_and_does_not_fail(result, ax, name):
    empty = type("Empty", (), {"scenario": result.scenario, "summary": result.summary, **{
        table: getattr(result, table).iloc[:0] for table in ("turns", "pauses", "moves", "timeline")},
        "steps": {"itl": {"low_s": [], "high_s": [], "weight": []}}})()
    texts(getattr(Plots(empty), name)(ax))


def test_pool_stack_adds_up_to_the_pool(result):
    timeline = runs._one(result.timeline)
    edges = np.linspace(0, timeline["time_s"].max(), 40)
    whole = runs.grown(timeline, [f"{use}_byte_s" for use in POOL_USES], edges) / np.diff(edges)
    assert whole == pytest.approx(2 * 12 * 2**30, rel=1e-3)
    assert set(POOL_USES) == {use for uses in runs.POOL_KINDS.values() for use in uses}


def test_growth_over_the_whole_axis_is_the_last_sample(result):
    timeline = runs._one(result.timeline)
    edges = np.linspace(0, timeline["time_s"].max(), 7)
    last = timeline.sort_values("time_s").groupby("replica")["gpu_decode_cum_s"].last().sum()
    assert runs.grown(timeline, ["gpu_decode_cum_s"], edges).sum() == pytest.approx(last)


def test_ttft_curve_passes_through_the_percentiles_of_the_summary(ax):
    turns = pd.DataFrame({"status": "finished", "ready_s": 0.0, "first_token_s": np.arange(1, 102) / 10,
                          "first": False})
    line = plots.ttft(turns, ax).get_lines()[0]
    at, share = line.get_data()
    assert np.interp(50, share, at) == pytest.approx(5.1)
    assert np.interp(95, share, at) == pytest.approx(9.6)


def test_time_by_cause_bars_end_at_the_mean_turn(result, ax):
    rows = result.turns.query("status == 'finished' and ready_s >= 20 and not first")
    mean = (rows["end_s"] - rows["ready_s"]).mean()
    drawn = plots.time_by_cause(result.turns, ax, warmup_s=20)
    row = [label.get_text().startswith("resumed") for label in drawn.get_yticklabels()].index(True)
    ends = [bar.get_x() + bar.get_width() for bar in drawn.patches if round(bar.get_y() + 0.35) == row]
    assert max(ends) == pytest.approx(mean, rel=1e-3)


def test_overview_and_pyplot(result):
    import matplotlib.pyplot as plt

    assert len(result.plot().axes) == 6
    assert result.plot.itl().figure.number
    assert "pool_use" in repr(result.plot)
    plt.close("all")


def test_limits_of_the_scenario_are_marked(result, ax):
    assert "limit of p95, 2 s" in texts(result.plot.ttft(ax))


def points():
    rows = [(x, policy, replication, x * (2 if policy == "drop" else 1) * (1 + replication / 10), 10 / x)
            for x in (8, 16, 64) for policy in ("keep", "drop") for replication in range(3)]
    return pd.DataFrame(rows, columns=["load", "policy", "replication", "ttft_resumed_p95_s", "usd_per_trajectory"])


def test_heat_map_writes_the_mean_of_each_cell(ax):
    text = texts(plots.heat_map(points(), "load", "policy", "ttft_resumed_p95_s", ax, best="low"))
    assert all(f">{value}</text>" in text for value in ("8.8 s", "17.6 s", "2.35 min"))


def test_heat_map_of_holes_and_of_one_value(ax):
    frame = points().iloc[:3].assign(ttft_resumed_p95_s=1.0)
    both = pd.concat([frame, frame.assign(load=9, ttft_resumed_p95_s=np.nan)])
    assert "no data" in texts(plots.heat_map(both, "load", "policy", "ttft_resumed_p95_s", ax))


def test_lines_carry_intervals_and_the_right_means(ax):
    drawn = plots.lines(points(), "load", "ttft_resumed_p95_s", "policy", ax, limit=50.0)
    keep = next(line for line in drawn.get_lines() if line.get_label() == "keep")
    assert keep.get_ydata() == pytest.approx([8.8, 17.6, 70.4])
    assert len(drawn.collections) == 2
    assert "limit 50 s" in texts(drawn)
    assert drawn.get_ylabel() == "TTFT of resumed turns, p95 (s)"


def test_two_replications_are_dots_and_words_are_categories(ax):
    frame = points()[points()["replication"] < 2]
    drawn = plots.lines(frame, "policy", "usd_per_trajectory", "load", ax)
    assert [label.get_text() for label in drawn.get_xticklabels()] == ["keep", "drop"]
    assert all(hasattr(found, "get_offsets") for found in drawn.collections)


@pytest.mark.parametrize(("column", "text"), [
    ("ttft_resumed_p95_s", "TTFT of resumed turns, p95 (s)"), ("turns_per_s", "turns per second"),
    ("usd_per_trajectory", "USD per trajectory"), ("hit_rate_total", "hit rate total"), ("hold_GB_s", "hold GB s"),
    ("workload.arrivals.closed.concurrency", "workload.arrivals.closed.concurrency")])
def test_names_of_columns_in_words(column, text):
    assert sweeps.unit(column) == text


def test_front_holds_what_nothing_beats():
    cost, latency = [3, 1, 2, 2, 5], [1, 9, 4, 5, 1]
    assert sweeps.front(cost, latency) == [1, 2, 0]


def test_pareto_marks_the_front(ax):
    frame = pd.DataFrame({"usd_per_trajectory": [1.0, 2.0, 3.0, np.nan], "ttft_resumed_p95_s": [9.0, 1.0, 5.0, 1.0],
                          "policy": ["a", "b", "a", "b"]})
    drawn = plots.pareto(frame, by="policy", label="policy", ax=ax)
    step = next(line for line in drawn.get_lines() if str(line.get_label()).startswith("front"))
    assert list(step.get_xdata()) == [1.0, 2.0]


def test_memory_wall_holds_the_chapters_numbers(ax):
    line = plots.memory_wall(["llama-3.1-70b"], ax).get_lines()[0]
    assert line.get_ydata()[-1] == pytest.approx(42.949, rel=1e-3)  # 131,072 tokens, in GB


def test_envelope_of_b200_lies_above_h100_and_sharing_above_none(ax):
    found = memory.envelope_points(contexts=(32_768,)).set_index(["hardware", "shared"])["trajectories"]
    assert found["dgx-b200", 0.0] > found["dgx-h100", 0.0] > 0
    assert found["dgx-h100", 0.75] > 3 * found["dgx-h100", 0.0]
    assert len(plots.envelope(ax=ax).get_lines()) == 4


def test_fragmentation_map_and_reallocation(ax):
    text = texts(plots.fragmentation(ax=ax))
    assert "does not fit" in text
    assert "100% of free is in too small holes" in text
    assert "peak while copying: 3 x" in texts(plots.reallocation(ax=style.figure()[1]))


@pytest.mark.parametrize(("tokens", "own"), [(100, True), (96, False)])
def test_a_fork_copies_the_tail_only_when_it_is_partly_filled(tokens, own):
    parent, child = structures.forked(tokens).values()
    assert child[:6] == parent[:6]
    assert (len(child) == len(parent)) is own
    assert child[-1] not in parent


def test_block_table_and_tiers_draw(ax):
    assert "7 full" not in texts(plots.block_table(ax=ax))
    assert "pcie-gen5-x16" in texts(plots.tiers("dgx-h100", style.figure()[1]))


def test_prefix_tree_shows_what_the_simulators_tree_holds(ax):
    from sim.report.plots.gallery import cached_prefixes

    spans = cached_prefixes(evict=110)
    gone = spans[spans["state"] == "evicted"]
    assert (gone["end"] - gone["first"]).sum() == 110 * 16
    assert set(gone["label"]) == {"agent 1", "agent 3"}  # the least recently used leaves
    assert set(spans[spans["state"] == "in use"]["label"]) == {"system", "repository 1", "agent 2"}
    assert "evicted" in texts(plots.prefix_tree(spans, ax))


def test_step_lengths_are_the_chapters():
    whole = max(length for length, _ in waits.steps_of(4_096, 4_096))
    chunked = [length for length, kind in waits.steps_of(4_096, 512) if kind == "both"]
    assert whole == pytest.approx(1.19467, rel=1e-4)
    assert len(chunked) == 8
    assert max(chunked) == pytest.approx(0.158667, rel=1e-4)
    assert waits.steps_of(4_096, 512)[0][0] == pytest.approx(0.046667, rel=1e-4)
    assert "159 ms" in texts(plots.step_lengths(ax=style.figure()[1]))


def test_regimes_meet_where_costs_are_equal(ax):
    pause = waits.Pause(memory.deployed("llama-3.1-70b", "dgx-h100"))
    at = pause.threshold_s(32_768)
    cost = pause.costs(32_768, np.array([at]))
    assert cost["keep"][0] == pytest.approx(cost["offload"][0])
    before, after = (pause.costs(32_768, np.array([at * factor])) for factor in (0.99, 1.01))
    assert before["keep"] < before["offload"]
    assert after["keep"] > after["offload"]
    assert all(word in texts(plots.regimes(ax)) for word in ("keep", "offload", "drop", "T*"))
    assert "break-even wait" in texts(plots.break_even(style.figure()[1]))


def test_the_same_figure_gives_the_same_bytes(result):
    assert len({texts(result.plot.pool_use(style.figure()[1])) for _ in range(2)}) == 1


def test_colours_are_told_apart_in_grey():
    order = ["decoding", "prefilling", "kept", "dormant", "free"]
    grey = [float(np.dot(mpl.colors.to_rgb(style.COLOURS[name]), [0.2126, 0.7152, 0.0722])) for name in order]
    hatch = [style.HATCHES.get(name) for name in order]
    for low in range(len(order) - 1):
        assert abs(grey[low] - grey[low + 1]) > 0.12 or hatch[low] != hatch[low + 1]


def test_drawing_leaves_matplotlibs_settings_alone():
    before = dict(mpl.rcParams)
    texts(plots.reallocation(ax=style.figure()[1]))
    assert dict(mpl.rcParams) == before


def test_every_public_name_is_there():
    assert all(callable(getattr(plots, name)) for name in plots.__all__)
    assert sim.plots.pool_use is plots.pool_use
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = plots.nonsense
