"""A scenario's hardware, worked out: the pool, blocks, links, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardware_profiles
import sim.scenario
from sim.errors import InputError
from sim.scenario.deployment import Deployment, deploy

GiB = 2**30
BASE: dict[str, Any] = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "parallelism": {"tp": 8},
                        "workload": {"agents": {"turns": 2, "output": 10}}}


def deployed(**changes: Any) -> Deployment:
    return deploy(sim.scenario.load(BASE | changes))


def test_pool_is_what_weights_activations_and_runtime_leave() -> None:
    place = deployed(engine={"memory_utilization": 0.9, "activations": "1 GiB", "runtime": "3 GiB"})
    weights = 2 * hardware_profiles.model("llama-3.1-70b").n_params
    assert place.weight_bytes == weights
    assert place.pool_bytes == pytest.approx(8 * (80 * GiB * 0.9 - weights / 8 - 4 * GiB), abs=8)
    assert place.block_bytes == 16 * 327_680
    assert place.pool_blocks == place.pool_bytes // place.block_bytes
    assert (place.kv_bytes_per_token, place.kv_copies, place.state_bytes_per_sequence) == (327_680, 1, 0)
    assert (place.replicas, place.replicas_per_node, place.gpus_per_replica, place.gpus) == (1, 1, 8, 8)
    assert place.peak_flops == 8 * 989.4e12
    assert place.hbm_Bps == 8 * 3.35e12


def test_the_chapters_node() -> None:
    model = {"n_params": 70_600_000_000, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "head_dim": 128}
    place = deployed(model=model, engine={"memory_utilization": 1.0, "activations": 0, "runtime": "2.5 GB"})
    assert place.pool_bytes == pytest.approx(525.99e9, rel=1e-4)
    assert [place.pool_bytes // place.trajectory_bytes(tokens) for tokens in (8192, 32768, 131072)] == [195, 48, 12]
    given_pool = deployed(engine={"pool": "480 GiB"})
    assert given_pool.pool_blocks == 98_304


def test_activations_follow_the_stated_formula() -> None:
    small = deployed(engine={"schedule": {"policy": "chunked", "token_budget": 2048, "max_seqs": 64}})
    large = deployed(engine={"schedule": {"policy": "chunked", "token_budget": 16384, "max_seqs": 64}})
    assert small.activation_bytes == pytest.approx(8 * (2 * 2048 * (4 * 8192 + 3 * 28672 / 8) + 8 * 64 * 128256), abs=8)
    assert large.pool_bytes < small.pool_bytes


def test_replicas_share_nodes() -> None:
    place = deployed(model="llama-3.1-8b", parallelism={"tp": 2}, nodes=3)
    assert (place.replicas, place.replicas_per_node, place.gpus) == (12, 4, 24)
    fewer = deployed(model="llama-3.1-8b", parallelism={"tp": 2}, nodes=3, replicas=1)
    assert (fewer.replicas, fewer.gpus) == (3, 24)


def test_links_add_up_to_what_host_memory_allows() -> None:
    """With blocks so large that their copies reach the links' full rates, but for a thousandth."""
    large = {"engine": {"block_size": 65_536}}
    place = deployed(**large)
    assert place.host_link_Bps_out == place.host_link_Bps_in == pytest.approx(400e9, rel=1e-3)
    assert place.host_link_Bps_both == 614.4e9
    one = deployed(model="llama-3.1-8b", parallelism={"tp": 1}, **large)
    assert (one.host_link_Bps_out, one.host_link_Bps_both) == pytest.approx((50e9, 83.4e9), rel=1e-3)
    coupled = deployed(model="llama-3.1-8b", parallelism={"tp": 2}, hardware="gh200-nvl2", **large)
    assert coupled.host_link_Bps_in == pytest.approx(754e9, rel=1e-3)
    assert coupled.host_link_Bps_both == 768e9


def test_latent_attention_is_replicated_and_windows_are_state() -> None:
    latent = deployed(model="deepseek-v3", hardware="dgx-b200", weights_dtype="fp8")
    assert latent.kv_bytes_per_token == 8 * 70_272
    assert latent.peak_flops == 8 * 4500e12
    oss = deployed(model="gpt-oss-120b")
    assert (oss.window_layers, oss.window, oss.full_layers) == (18, 128, 18)
    assert oss.state_bytes_per_sequence == 18 * 128 * 2048
    assert oss.trajectory_bytes(1024) == oss.kv_bytes(1024)
    hybrid = deployed(model="qwen3-next-80b-a3b")
    assert hybrid.kv_copies == 4
    assert hybrid.state_bytes_per_sequence == 36 * 2_146_304


def test_expert_weights_read_grow_with_the_step() -> None:
    place = deployed(model="mixtral-8x7b")
    one, few, many = (place.step_weight_bytes(tokens) for tokens in (1, 8, 10_000))
    assert one < few < many <= place.weight_bytes


def test_uneven_stages_leave_room_in_the_pool_unused() -> None:
    even = deployed(model="llama-3.1-405b", weights_dtype="fp8", parallelism={"tp": 4, "pp": 2})
    assert even.pool_blocks == even.pool_bytes // even.block_bytes
    model = hardware_profiles.model("llama-3.1-8b").model_dump(exclude_none=True) | {"n_layers": 33}
    uneven = deployed(model=model, parallelism={"tp": 4, "pp": 2})
    assert uneven.pool_blocks == int(uneven.pool_bytes // (uneven.block_bytes * 34 / 33))


def test_tiers_come_from_the_node() -> None:
    assert deployed().dram_bytes == 0
    assert deployed(tiers={"dram": {"capacity": "1 TiB"}}).dram_bytes == 2**40


@pytest.mark.parametrize(("changes", "said"), [
    ({"parallelism": {"tp": 1}}, "parallelism: llama-3.1-70b in bf16 leaves no room for KV"),
    ({"parallelism": {"tp": 16}}, "parallelism: a replica of tp 16 x pp 1 needs 16 GPUs"),
    ({"parallelism": {"tp": 4}, "replicas": 3}, "replicas: dgx-h100 has 8 GPUs, room for 2 replica(s) of 4 (got 3)"),
    ({"parallelism": {"tp": 3}}, "parallelism.tp: must divide the 64 attention heads of llama-3.1-70b (got 3)"),
    ({"tiers": {"dram": {"capacity": "3 TiB"}}}, "tiers.dram.capacity: dgx-h100 has 2048 GiB of host memory"),
    ({"engine": {"pool": "1 MiB"}}, "engine.pool: the KV pool of 1048576 bytes does not hold one block"),
])
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        deployed(**changes)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@given(utilization=st.floats(0.7, 0.99), more=st.floats(0, 0.01))
@settings(max_examples=25)
def test_the_pool_grows_with_memory_utilization(utilization: float, more: float) -> None:
    small = deployed(engine={"memory_utilization": utilization})
    large = deployed(engine={"memory_utilization": utilization + more})
    assert small.pool_blocks <= large.pool_blocks


@given(tp=st.sampled_from([1, 2, 4, 8]), size=st.integers(1, 256))
@settings(max_examples=25)
def test_total_bytes_do_not_depend_on_tensor_parallelism(tp: int, size: int) -> None:
    place = deployed(model="llama-3.1-8b", parallelism={"tp": tp}, engine={"block_size": size})
    assert place.kv_bytes_per_token == 131_072
    assert place.block_bytes == size * 131_072
    assert place.trajectory_bytes(5000) >= place.kv_bytes(5000)
