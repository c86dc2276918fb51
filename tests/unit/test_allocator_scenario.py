"""Is every allocator a scenario may ask for understood, and every mistake answered by one clear line?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.errors import InputError
from sim.scenario import dump, load
from sim.scenario.allocators import Buddy, Growth, Paged, Static
from sim.scenario.deployment import deploy

GOOD = """model: llama-3.1-70b
hardware: dgx-h100
parallelism: {tp: 8}
workload:
  agents: {turns: 5, tools: {bash: {wait: 3 s}}}
"""
SHARES = "shares no prefixes; set prefix_cache: {enabled: false} (got enabled)"


def engine(line: str) -> Any:
    return load(f"{GOOD}engine: {line}\n").engine


@pytest.mark.parametrize(("line", "means"), [
    ("{}", Paged()),
    ("{allocator: paged}", Paged()),
    ("{allocator: static}", Static()),
    ("{allocator: {kind: static, s_max: 4096}}", Static(s_max=4096)),
    ("{allocator: growth}", Growth()),
    ("{allocator: {kind: growth, factor: 1.5, initial: prompt, fit: best, malloc_stall: 2 ms}}",
     Growth(factor=1.5, initial="prompt", fit="best", malloc_stall=2e-3)),
    ("{allocator: {kind: buddy, smallest: 64}}", Buddy(smallest=64)),
])
def test_what_a_scenario_says_is_what_it_gets(line: str, means: Any) -> None:
    found = engine(line)
    assert found.allocator == means
    assert found.prefix_cache.enabled == found.allocator.paged
    assert found.slot_tokens == (16 if found.allocator.paged else 1)


@pytest.mark.parametrize("kind", ["static", "growth", "buddy"])
def test_what_is_resolved_loads_again(kind: str) -> None:
    scenario = load(f"{GOOD}engine: {{allocator: {kind}}}\n")
    assert load(dump(scenario)) == scenario
    varied = load(GOOD, [f"engine.allocator={kind}"])
    assert varied == scenario
    assert load(dump(scenario), ["engine.allocator=paged"]).engine.allocator == Paged()


@pytest.mark.parametrize(("line", "says"), [
    ("engine: {allocator: [static]}", "engine.allocator: expected a mapping (got [static])"),
    ("engine: {allocator: {s_max: 8}}", "engine.allocator.s_max: unknown field; choose from kind (got 8)"),
    ("engine: {allocator: {kind: static, smax: 8}}", "engine.allocator.smax: unknown field; did you mean s_max?"),
    ("engine: {allocator: {kind: static, s_max: 0}}",
     "engine.allocator.s_max: must be greater than or equal to 1 (got 0)"),
    ("engine: {allocator: {kind: growth, factor: 1}}",
     "engine.allocator.factor: must be greater than or equal to 1.01 (got 1)"),
    ("engine: {allocator: {kind: growth, initial: 0}}",
     "engine.allocator.initial: expected tokens, 1 or more, or prompt (got 0)"),
    ("engine: {allocator: {kind: growth, initial: all}}",
     "engine.allocator.initial: expected tokens, 1 or more, or prompt (got all)"),
    ("engine: {allocator: {kind: growth, fit: worst}}", "engine.allocator.fit: unknown value; did you mean first?"),
    ("engine: {allocator: {kind: growth, malloc_stall: -1 ms}}",
     "engine.allocator.malloc_stall: must be greater than or equal to 0"),
    ("engine: {allocator: {kind: buddy, smallest: 3}}",
     "engine.allocator.smallest: must be a power of two (got 3)"),
    ("engine: {allocator: static, prefix_cache: on}", f"engine.prefix_cache: a static allocator {SHARES}"),
    ("engine: {allocator: growth, prefix_cache: {eviction: lfu}}",
     f"engine.prefix_cache: a growth allocator {SHARES}"),
    ("engine: {preset: vllm, allocator: buddy}", f"engine.prefix_cache: a buddy allocator {SHARES}"),
])
def test_one_line_with_its_place(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD + line + "\n")
    with pytest.raises(InputError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:6: {says}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("write", ["on_compute", "on_evict"])
def test_a_buffer_is_written_below_only_as_it_leaves(write: str) -> None:
    with pytest.raises(InputError, match=r"tiers\.dram\.write: a growth allocator gives a buffer up whole, so its con"):
        load(f"{GOOD}engine: {{allocator: growth}}\ntiers: {{dram: {{capacity: 1 TiB, write: {write}}}}}\n")
    assert load(f"{GOOD}engine: {{allocator: growth}}\ntiers: {{dram: {{capacity: 1 TiB}}}}\n").tiers.dram


def test_a_context_is_copied_out_of_its_buffer_in_one_piece() -> None:
    """At the link's full rate, once a copy has started; the layout says into how many copies it falls."""
    text = f"{GOOD}engine: {{allocator: buddy}}\ntiers: {{dram: {{capacity: 1 TiB}}}}\n"
    link = deploy(load(text)).node.host_link
    for layout, copies in (("block", 1), ("per_layer", 2 * 80)):
        at = deploy(load(text, overrides=[f"tiers.dram.layout={layout}"]))
        assert at.piece_bytes == math.inf
        assert at.host_link_Bps_out == at.gpus_per_replica * link.out_Bps
        assert at.host_link_Bps_in == at.gpus_per_replica * link.in_Bps
        assert at.host_link_latency_s == link.latency_s + copies * link.half_rate_bytes / link.out_Bps
        assert at.stored_bytes(1025) == 1025 * at.block_bytes < at.trajectory_bytes(1025)


@pytest.mark.parametrize(("line", "says"), [
    ("{kind: static, s_max: 10000000}", "s_max: a buffer of so many tokens does not fit the KV pool of 1,422,504 tok"),
    ("{kind: buddy, smallest: 16777216}", "smallest: a block of so many tokens does not fit the KV pool of 1,422,504"),
])
def test_a_pool_too_small_for_one_buffer_is_an_error(line: str, says: str) -> None:
    with pytest.raises(InputError, match=f"engine.allocator.{says}"):
        deploy(load(f"{GOOD}engine: {{allocator: {line}}}\n"))


def test_buffers_too_small_for_every_context_are_an_error_that_says_so() -> None:
    with pytest.raises(InputError, match="the largest buffer of a replica holds 200 tokens, so every trajectory is tu"):
        sim.run(load(f"{GOOD}engine: {{allocator: {{kind: static, s_max: 200}}}}\n"))


@pytest.mark.parametrize(("line", "tokens", "slots"), [
    ("static", 100, 131_072), ("{kind: static, s_max: 4096}", 100, 4096), ("growth", 1025, 2048),
    ("{kind: growth, initial: prompt}", 1025, 1025), ("{kind: growth, factor: 3}", 1025, 2187),
    ("buddy", 1025, 2048), ("{kind: buddy, smallest: 4096}", 1025, 4096)])
def test_a_context_takes_the_buffer_that_its_allocator_gives(line: str, tokens: int, slots: int) -> None:
    place = deploy(load(f"{GOOD}engine: {{allocator: {line}}}\n"))
    assert place.trajectory_bytes(tokens) == slots * place.block_bytes
    assert place.fit(tokens) == place.pool_blocks // slots
    assert place.fit(tokens, shared=tokens - 1) == place.fit(tokens)


def test_a_context_longer_than_a_static_buffer_never_fits() -> None:
    assert deploy(load(f"{GOOD}engine: {{allocator: {{kind: static, s_max: 4096}}}}\n")).fit(4097) == 0
