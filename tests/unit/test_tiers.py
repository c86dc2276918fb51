"""Tiers in a scenario: sizes, links, layouts and methods of copies, and how real engines set them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hardware_profiles
from sim.errors import InputError
from sim.policies.eviction import Arc
from sim.scenario import dump, load, preset
from sim.scenario.deployment import Deployment, deploy
from sim.scenario.model import Scenario
from sim.units import GB, GiB, KiB

PRESETS = Path(preset.__file__).parent / "presets"
PCIE = hardware_profiles.link("pcie-gen5-x16")


def loaded(**fields: Any) -> Scenario:
    return load({"model": "llama-3.1-70b", "hardware": "dgx-h100", "parallelism": {"tp": 8},
                 "workload": {"agents": {"turns": 5}}, **fields})


def deployed(**fields: Any) -> Deployment:
    return deploy(loaded(**fields))


# ------------------------------------------------------------------------------------------------ links and layouts


@pytest.mark.parametrize(("layout", "block", "piece"), [
    ("block", 16, 640 * KiB), ("block", 64, 2560 * KiB), ("per_layer", 16, 4 * KiB), ("per_layer", 64, 16 * KiB)])
def test_a_piece_is_what_lies_together_on_one_gpu(layout: str, block: int, piece: int) -> None:
    """320 KiB a token over 8 GPUs and, layer by layer, 80 layers of keys and of values."""
    at = deployed(engine={"block_size": block}, tiers={"dram": {"capacity": "1 TiB", "layout": layout}})
    assert at.piece_bytes == piece
    rate = PCIE.out_Bps * piece / (piece + PCIE.half_rate_bytes)
    assert at.host_link_Bps_out == at.host_link_Bps_in == pytest.approx(8 * rate)
    assert at.host_link_Bps_both <= 8 * 83.4e9


def test_a_latent_is_one_piece_a_layer() -> None:
    model = hardware_profiles.model("deepseek-v3")
    tiers = {"dram": {"capacity": "1 TiB", "layout": "per_layer"}}
    at = deployed(model="deepseek-v3", weights_dtype="fp8", hardware="dgx-h200", tiers=tiers)
    assert at.piece_bytes == pytest.approx(16 * model.kv_bytes_per_token("bf16") / model.full_layers)


def test_blocks_scattered_by_layer_copy_slower_and_the_method_makes_up_for_it() -> None:
    def rate(**dram: Any) -> float:
        return deployed(tiers={"dram": {"capacity": "1 TiB", **dram}}).host_link_Bps_out / 8

    scattered = rate(layout="per_layer")
    assert scattered < 1.5 * GB  # 4 KiB pieces: 1.2 GB/s, 0.9 measured
    assert rate(layout="per_layer", method="zero_copy") > 10 * scattered
    assert rate(layout="per_layer", method="staged") == rate(method="staged") == pytest.approx(48.5 * GB, rel=1e-2)
    assert scattered < rate() < rate(method="staged") < PCIE.out_Bps
    assert deployed(tiers={"dram": {"capacity": "1 TiB", "method": "zero_copy"}}).step_slowdown == 0.06
    assert deployed(tiers={"dram": {"capacity": "1 TiB"}}).step_slowdown == 0.0


def test_a_method_without_measured_rates_is_refused() -> None:
    own = {"gpu": "h100-sxm-80gb", "gpus": 8, "host_link": {"out_Bps": "50 GB/s", "in_Bps": "50 GB/s"}}
    with pytest.raises(InputError, match=r"^tiers.dram.method: custom has no measured rates for it \(got zero_copy\)$"):
        deployed(hardware=own, tiers={"dram": {"capacity": "1 TiB", "method": "zero_copy"}})


def test_drives_of_the_catalogue_take_the_place_of_the_nodes_own() -> None:
    own = deployed(tiers={"nvme": {"capacity": "10 TB"}}).tiers["nvme"]
    node = hardware_profiles.node("dgx-h100")
    assert (own.out_Bps, own.in_Bps) == (node.nvme_write_Bps, node.nvme_read_Bps)
    array = deployed(tiers={"nvme": {"capacity": "99 TB", "link": "nvme-gen5-x4", "links": 4}}).tiers["nvme"]
    assert (array.out_Bps, array.in_Bps, array.latency_s) == (28e9, 56e9, 70e-6)
    with pytest.raises(InputError, match=r"^tiers.nvme.capacity: dgx-h100 has 30.72 TB of local storage"):
        deployed(tiers={"nvme": {"capacity": "99 TB"}})
    with pytest.raises(InputError, match=r"tiers.nvme.link: unknown link; did you mean nvme-gen5-x4"):
        deployed(tiers={"nvme": {"capacity": "9 TB", "link": "nvme-gen5"}})


def test_remote_memory_is_reached_over_the_nodes_network() -> None:
    remote = deployed(tiers={"remote": {"capacity": "50 TB"}}).tiers["remote"]
    assert remote.out_Bps == remote.in_Bps == pytest.approx(8 * 48.3e9)  # 8 adapters of 400 Gb/s
    assert remote.latency_s == 10e-6
    two = deployed(tiers={"remote": {"capacity": "50 TB", "link": "rdma-800g", "links": 2}}).tiers["remote"]
    assert two.out_Bps == pytest.approx(2 * 96.6e9)
    own = {"gpu": "h100-sxm-80gb", "gpus": 8, "host_link": "pcie-gen5-x16"}
    with pytest.raises(InputError, match=r"^tiers.remote.capacity: inline does not say how fast its network is"):
        deployed(hardware=own, tiers={"remote": {"capacity": "1 TB"}})


def test_a_tier_may_be_sized_by_the_pools() -> None:
    at = deployed(replicas=1, tiers={"dram": {"pool_ratio": 2}})
    assert at.dram_bytes == 2 * at.pool_bytes
    two = deployed(model="llama-3.1-8b", parallelism={"tp": 1}, replicas=2, tiers={"dram": {"pool_ratio": 0.5}})
    assert two.dram_bytes == two.pool_bytes
    with pytest.raises(InputError, match=r"tiers.dram.pool_ratio: dgx-h100 has 2048 GiB"):
        deployed(tiers={"dram": {"pool_ratio": 99}})
    with pytest.raises(InputError, match=r"tiers.dram.pool_ratio: stands in place of a capacity"):
        loaded(tiers={"dram": {"pool_ratio": 2, "capacity": "1 GB"}})
    again = load(dump(loaded(tiers={"dram": {"pool_ratio": 2}})))
    assert again.tiers.dram.pool_ratio == 2


def test_tiers_have_an_eviction_order() -> None:
    tiers = loaded(tiers={"dram": {"capacity": "1 TiB", "eviction": "arc"},
                          "nvme": {"capacity": "1 TB", "eviction": {"half_life": "60 s", "policy": "lfu"}}}).tiers
    assert tiers.dram.eviction == Arc()
    assert tiers.nvme.eviction.half_life == 60
    with pytest.raises(InputError, match=r"tiers.dram.low_watermark: must not exceed high_watermark, which is 0.5"):
        loaded(tiers={"dram": {"capacity": "1 TiB", "high_watermark": 0.5}})


# -------------------------------------------------------------------------------------------------------- presets

#: Defaults of engines, where they were read, and when.
READ = [
    ("lmcache", "capacity", 5 * GB, "max_local_cpu_size"), ("lmcache", "write", "on_compute", ""),
    ("lmcache", "prompt_only", True, "save_decode_cache"), ("lmcache", "unit", 256, "chunk_size"),
    ("lmcache", "eviction.policy", "lru", "cache_policy"), ("lmcache", "method", "staged", "use_layerwise"),
    ("lmcache", "layout", "block", ""),
    ("hicache", "pool_ratio", 2.0, "hicache_ratio"), ("hicache", "write", "on_compute", "hicache_write_policy"),
    ("hicache", "min_uses", 1, "write_through_selective"), ("hicache", "min_load", 10, "load_back_threshold"),
    ("hicache", "layout", "per_layer", "hicache_mem_layout"), ("hicache", "method", "zero_copy", "hicache_io_backend"),
    ("hicache", "eviction.policy", "lru", ""), ("hicache", "prompt_only", False, ""), ("hicache", "unit", 1, ""),
]


@pytest.mark.parametrize(("name", "field", "value", "setting"), READ)
def test_tiering_presets(name: str, field: str, value: Any, setting: str) -> None:
    at: Any = loaded(engine={"preset": name}).tiers.dram
    for part in field.split("."):
        at = getattr(at, part)
    assert at == value
    text = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
    assert setting in text, "the engine's own name of the setting"
    assert re.search(r"read 20\d\d-\d\d", text)


def test_tiering_presets_extend_their_engines() -> None:
    lmcache, vllm = loaded(engine={"preset": "lmcache"}), loaded(engine={"preset": "vllm"})
    assert lmcache.engine.model_copy(update={"preset": "vllm"}) == vllm.engine
    assert (lmcache.retention.policy, lmcache.retention.reload) == ("release", "blocking")
    hicache, sglang = loaded(engine={"preset": "hicache"}), loaded(engine={"preset": "sglang"})
    assert hicache.engine.model_copy(update={"preset": "sglang", "block_size": 1}) == sglang.engine
    assert hicache.engine.block_size == 64
    assert (hicache.retention.policy, hicache.retention.reload) == ("release", "pipelined")
    assert vllm.tiers.dram is sglang.tiers.dram is None


def test_trtllm_keeps_no_host_cache_unless_asked_and_then_copies_on_eviction() -> None:
    engine = loaded(engine={"preset": "trtllm"}).engine
    assert (engine.block_size, engine.memory_utilization, engine.schedule.reserve) == (32, 0.9, "prompt_and_output")
    assert (engine.prefix_cache.tail, engine.prefix_cache.eviction.policy) == ("cow", "lru")
    assert loaded(engine={"preset": "trtllm"}).tiers.dram is None
    host = loaded(engine={"preset": "trtllm"}, tiers={"dram": {"capacity": "1 TiB"}}).tiers.dram
    assert (host.write, host.capacity) == ("on_evict", 1024 * GiB)
    assert loaded(engine={"preset": "trtllm"}, tiers={"dram": None}).tiers.dram is None


def test_a_scenario_overrides_a_presets_tier() -> None:
    one = loaded(engine={"preset": "hicache"}, tiers={"dram": {"capacity": "100 GiB", "write": "on_evict"}}).tiers.dram
    assert (one.capacity, one.pool_ratio, one.write, one.min_load) == (100 * GiB, None, "on_evict", 10)
    assert loaded(engine={"preset": "lmcache"}, tiers={"dram": None}).tiers.dram is None
