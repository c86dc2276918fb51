"""Does the fit find what made the samples, and say how far it is off?"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate import blocks, build, fit, held_out, host_link, parametric
from calibrate.frames import Frames, kv_bytes
from calibrate.import_vidur import read as read_vidur
from calibrate.read_samples import read as read_samples
from calibrate.rising import rising
from sim.errors import InputError
from sim.timing.measured_profile import read as read_profile
from sim.timing.measured_profile import write

OVERHEAD, FLOPS, BPS = 6e-6, 600e12, 2.9e12


def noise(count, size, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0.0, size, count))


def products(size=0.0):
    table = pd.DataFrame([("bf16", n, k, m) for n in (2048, 4096, 8192) for k in (2048, 8192)
                          for m in (1, 4, 16, 64, 256, 1024, 4096, 16384)], columns=["dtype", "n", "k", "tokens"])
    flop, moved = parametric.linear_work(table)
    return table.assign(us=(OVERHEAD + flop / FLOPS + moved / BPS) * 1e6 * noise(len(table), size))


def decodes(size=0.0):
    table = pd.DataFrame([(32, 8, 128, "bf16", b, c) for b in (1, 4, 16, 64) for c in (512, 2048, 8192, 32768)],
                         columns=["heads", "kv_heads", "head_dim", "kv_dtype", "batch", "context"])
    return table.assign(us=(OVERHEAD + 1e-7 * table["batch"] + kv_bytes(table) / BPS) * 1e6 * noise(len(table), size))


@pytest.mark.parametrize("size", [0.0, 0.02])
def test_the_fit_recovers_the_truth_within_2_percent(size):
    found = parametric.linear(products(size))
    assert found["overhead_s"] == pytest.approx(OVERHEAD, rel=0.02)
    assert found["flops"] == pytest.approx(FLOPS, rel=0.02)
    assert found["Bps"] == pytest.approx(BPS, rel=0.02)
    found = parametric.decode(decodes(size / 2))
    if not size:
        assert found["overhead_s"] == pytest.approx(OVERHEAD, rel=0.02)
    assert found["Bps"] == pytest.approx(BPS, rel=0.02)
    assert found["unit_s"] == pytest.approx(1e-7, rel=0.3 if size else 0.02)


def test_the_fit_recovers_prefill_and_all_reduce():
    chunks = pd.DataFrame([(32, 8, 128, "bf16", 1, n, p) for n in (128, 512, 2048, 8192) for p in (0, 4096, 65536)],
                          columns=["heads", "kv_heads", "head_dim", "kv_dtype", "batch", "new", "past"])
    work = 4.0 * 32 * 128 * chunks["new"] * (chunks["past"] + chunks["new"] / 2)
    found = parametric.prefill(chunks.assign(us=(OVERHEAD + work / FLOPS) * 1e6))
    assert found["flops"] == pytest.approx(FLOPS, rel=0.02)
    ring = pd.DataFrame([(g, 1 << p) for g in (2, 4, 8) for p in range(10, 28, 2)], columns=["gpus", "bytes"])
    moved = 2 * (ring["gpus"] - 1) / ring["gpus"] * ring["bytes"]
    found = parametric.all_reduce(ring.assign(us=(5e-6 + moved / 330e9) * 1e6))
    assert found["Bps"] == pytest.approx(330e9, rel=0.02)
    assert found["overhead_s"] == pytest.approx(5e-6, rel=0.02)


def test_slow_outliers_do_not_move_the_fit():
    table = products()
    table.loc[::9, "us"] *= 2.0
    assert parametric.linear(table)["Bps"] == pytest.approx(BPS, rel=0.02)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
@settings(max_examples=80)
def test_smoothed_times_never_fall(values):
    smooth = rising(values)
    assert np.all(np.diff(smooth) >= -1e-9 * smooth[:-1])
    assert smooth.min() >= min(values) * (1 - 1e-9)
    assert smooth.max() <= max(values) * (1 + 1e-9)


def test_a_single_slow_sample_is_passed_by():
    assert rising([10.0, 10.1, 25.0, 10.3, 10.4, 10.5]) == pytest.approx([10.0, 10.1, 10.3, 10.3, 10.4, 10.5], rel=0.03)


def frames(planning=True, size=0.0):
    return Frames("h100-sxm-80gb", "synthetic", 0.0, {"source": "synthetic"}, planning,
                  {"linear": products(size), "decode_attention": decodes(size)})


def test_a_profile_keeps_tables_fit_and_held_out_error(tmp_path):
    made = fit.profile(frames(size=0.01), "h100-sxm-80gb/synthetic")
    write(made, tmp_path / "p.json")
    again = read_profile(str(tmp_path / "p.json"))
    assert json.dumps(again.linear) == json.dumps(made.linear)
    assert again.error["decode_attention"]["points"] > 0
    assert again.error["decode_attention"]["median"] < 0.05
    assert again.fit["linear/bf16"]["flops"] == pytest.approx(FLOPS, rel=0.05)


def test_held_out_rows_are_not_in_the_prediction():
    table = decodes()
    spoiled = table.assign(us=table["us"].where(table["batch"] != 4, table["us"] * 1.5))
    errors = held_out.points(Frames("g", "d", 0.0, {}, True, {"decode_attention": spoiled}))
    four = errors[(errors["held_out"] == "batch 4")]
    assert len(four)
    assert (four["error"] < -0.2).all()
    assert held_out.misses({"linear": {"median": 0.06, "p90": 0.1}})


def test_points_inside_the_cache_are_left_out():
    table = decodes()
    rows = build.decode_rows(table, 50e6)
    kept = {row["batch"]: row["tokens"] for row in rows}
    assert kept[1][0] == 512
    assert all(tokens * 4096 > 50e6 for row in kept.values() for tokens in row[1:])


def test_the_published_host_link_is_met_within_5_percent():
    curves = host_link.published()
    assert {(c["method"], c["direction"]) for c in curves} == {("pieces", "out"), ("zero_copy", "out")}
    for curve in curves:
        assert host_link.fit(curve["piece_bytes"], curve["Bps"]).median <= 0.05
        assert host_link.leave_one_out(curve["piece_bytes"], curve["Bps"]) <= 0.05


@pytest.mark.skipif("KVPLAN_SHARED" not in os.environ, reason="KVPLAN_SHARED names no folder")
def test_the_stored_curves_are_the_published_ones_and_the_fit_meets_them():
    path = Path(os.environ["KVPLAN_SHARED"]) / "data" / "timings" / "h100_host_link_bandwidth_by_block_d2h.csv"
    table = pd.read_csv(path)
    stored = {curve["method"]: curve for curve in host_link.published()}
    for label, part in table.groupby("method"):
        curve = stored["pieces" if label == "DMA" else "zero_copy"]
        assert curve["piece_bytes"] == (part["block_kib"] * 1024).tolist()
        assert curve["Bps"] == pytest.approx(part["GBps"] * 1e9)
        fitted = host_link.fit(curve["piece_bytes"], curve["Bps"]).bandwidth(part["block_kib"] * 1024)
        assert np.median(np.abs(fitted / (part["GBps"] * 1e9) - 1.0)) <= 0.05


def vidur(folder):
    wide = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 14336, "use_gated_mlp": True,
            "num_tensor_parallel_workers": 2}
    pd.DataFrame([{**wide, "num_tokens": m, "time_stats.attn_pre_proj.median": 0.01 * m,
                   "time_stats.mlp_up_proj.median": 0.02 * m} for m in (1, 8, 64)]).to_csv(folder / "mlp.csv")
    shape = {"n_q_head": 32, "n_kv_head": 8, "n_embd": 4096, "num_tensor_parallel_workers": 2}
    rows = [{**shape, "batch_size": b, "kv_cache_size": c, "prefill_chunk_size": 0, "is_prefill": False,
             "time_stats.attn_decode.median": 0.01 * b * c, "time_stats.attn_prefill.median": np.nan}
            for b in (1, 4) for c in (127, 1023)]
    rows += [{**shape, "batch_size": 1, "kv_cache_size": p, "prefill_chunk_size": n, "is_prefill": True,
              "time_stats.attn_decode.median": np.nan, "time_stats.attn_prefill.median": 0.1}
             for n in (128, 512) for p in (0, 1024)]
    pd.DataFrame(rows).to_csv(folder / "attention.csv")
    pd.DataFrame([{"time_stats.all_reduce.median": us / 1e3 * (1 if inside == gpus else 5), "rank": 0,
                   "num_workers": gpus, "size": size, "collective": "all_reduce", "devices_per_node": inside,
                   "max_devices_per_node": 8}
                  for gpus in (2, 4) for inside in (1, gpus) for size, us in ((2048, 20.0), (1 << 20, 40.0))]
                 ).to_csv(folder / "all_reduce.csv")


def test_vidur_profiles_are_read(tmp_path):
    vidur(tmp_path)
    found = read_vidur(tmp_path, "a100-sxm-80gb")
    assert {(n, k) for n, k in found.get("linear")[["n", "k"]].to_numpy()} == {(3072, 4096), (14336, 4096)}
    assert set(found.get("decode_attention")["context"]) == {128, 1024}
    assert set(found.get("prefill_attention")["past"]) == {0, 1024}
    assert found.get("linear")["us"].iloc[0] == pytest.approx(10.0)
    assert found.get("all_reduce")["us"].tolist() == pytest.approx([20.0, 40.0] * 2), "within a node only"
    made = fit.profile(found, "a100-sxm-80gb/vidur")
    assert made.prefill_attention[0]["past"] == [0, 1024]
    write(made, tmp_path / "vidur.json")
    cost = measured(tmp_path / "vidur.json")
    assert cost.step(4, 4000, [(128, 1024)]) > cost.step(4, 4000) > 0
    assert "outside_measured_prefill_on_cached_past" not in cost.warnings()


def measured(path):
    import sim
    from sim.scenario.deployment import deploy
    from sim.timing import build as build_timing

    scenario = sim.load({"model": "llama-3.1-8b", "hardware": "dgx-a100", "parallelism": {"tp": 2},
                         "workload": {"agents": "chat"}, "timing": {"measured": str(path)}})
    return build_timing(scenario.timing, deploy(scenario))


def test_vidur_without_its_files_or_columns_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none of mlp\.csv"):
        read_vidur(tmp_path, "a100-sxm-80gb")
    pd.DataFrame({"num_tokens": [1]}).to_csv(tmp_path / "mlp.csv")
    with pytest.raises(InputError, match="has no column"):
        read_vidur(tmp_path, "a100-sxm-80gb")


def test_samples_of_the_benchmark_become_tables(tmp_path):
    path = tmp_path / "s.jsonl"
    head = {"provenance": 1, "device": "NVIDIA H200", "planning": True, "l2_bytes": 5e7}
    point = {"kernel": "linear", "dtype": "bf16", "n": 8, "k": 8, "tokens": 1}
    lines = [head, {"key": "a", "backend": "torch", "point": point, "us": 3.0},
             {"key": "b", "backend": "other", "point": point, "us": 2.0},
             {"key": "c", "backend": "torch", "point": {**point, "tokens": 2}, "skipped": "out of memory"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_samples(path)
    assert found.gpu == "h200-sxm-141gb"
    assert found.get("linear")["us"].tolist() == [2.0]
    assert found.provenance["left_out"] == 1
    path.write_text(json.dumps(lines[1]) + "\n")
    with pytest.raises(InputError, match="provenance"):
        read_samples(path)


EFFICIENCY = {1: 0.4, 4: 0.7, 8: 0.9, 16: 1.0, 64: 1.05, 128: 1.05}


def by_block(size=0.0, truth=EFFICIENCY):
    """Decode attention at several block sizes, of which the efficiencies are known."""
    base = decodes()[["heads", "kv_heads", "head_dim", "kv_dtype", "batch", "context", "us"]]
    tables = [base.assign(block=block, us=base["us"] / value) for block, value in truth.items()]
    table = pd.concat(tables, ignore_index=True)
    return table.assign(us=table["us"] * noise(len(table), size))


@pytest.mark.parametrize(("size", "within"), [(0.0, 1e-3), (0.05, 0.05)])
def test_the_efficiency_of_block_sizes_is_recovered(size, within):
    made = Frames("g", "d", 0.0, {}, True, {"decode_attention": decodes(), "decode_blocks": by_block(size)})
    table = fit.profile(made, "g/blocks").block_efficiency
    assert dict(zip(table["blocks"], table["efficiency"], strict=True)) == pytest.approx(EFFICIENCY, rel=within)
    assert table["points"] == 5 * len(decodes())


@given(st.lists(st.floats(0.2, 2.0), min_size=5, max_size=5))
@settings(max_examples=30)
def test_efficiency_never_falls_as_blocks_grow_and_is_1_at_the_reference(values):
    truth = dict(zip((1, 4, 8, 64, 128), values, strict=True)) | {16: 1.0}
    points = blocks.ratios(Frames("g", "d", 0.0, {}, True, {"decode_blocks": by_block(truth=truth)}))
    table = blocks.fit(points)
    assert np.all(np.diff(table["efficiency"]) >= 0.0)
    assert table["efficiency"][table["blocks"].index(16)] == 1.0


def test_one_slow_context_does_not_move_the_efficiency_and_shows_as_held_out_error():
    table = by_block()
    table.loc[(table["block"] == 4) & (table["context"] == 512) & (table["batch"] == 1), "us"] *= 3.0
    made = Frames("g", "d", 0.0, {}, True, {"decode_blocks": table})
    found = blocks.fit(blocks.ratios(made))
    assert found["efficiency"][found["blocks"].index(4)] == pytest.approx(0.7, rel=1e-3)
    errors = held_out.points(made)
    slow = errors[(errors["point"] == "batch 1, context 512, blocks of 4") & (errors["held_out"] != "blocks of 4")]
    assert slow["error"].tolist() == pytest.approx([-2.0 / 3.0], abs=1e-3)
    whole = errors[~errors["held_out"].str.startswith("blocks") & (errors["point"] != slow["point"].iloc[0])]
    assert whole["error"].abs().max() < 1e-3


def test_points_in_the_cache_say_nothing_of_block_sizes():
    table = by_block()
    near = kv_bytes(table) <= 50e6
    spoiled = table.assign(us=table["us"].where(~(near & (table["block"] == 1)), 1.0))
    made = Frames("g", "d", 50e6, {}, True, {"decode_blocks": spoiled})
    assert blocks.fit(blocks.ratios(made))["efficiency"][0] == pytest.approx(0.4, rel=1e-3)


def test_samples_of_one_block_size_make_no_table(tmp_path):
    assert fit.profile(frames(), "g/one").block_efficiency == {}
    path = tmp_path / "s.jsonl"
    shape = {"kernel": "decode_attention", "heads": 4, "kv_heads": 2, "head_dim": 16, "kv_dtype": "bf16"}
    lines = [{"provenance": 1, "device": "NVIDIA H200", "planning": True, "l2_bytes": 0}]
    lines += [{"key": f"{b} {c} {s}", "backend": "torch", "point": {**shape, "batch": b, "context": c, "block": s},
               "us": (5 + b * c / 100) / EFFICIENCY[s]} for b in (1, 4) for c in (1000, 8000) for s in (4, 16, 64)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = read_samples(path)
    assert len(read.get("decode_attention")) == 4, "the tables are those of the reference size"
    assert fit.profile(read, "g/several").block_efficiency["efficiency"] == pytest.approx([0.7, 1.0, 1.05])
