"""What a scenario amounts to before anything is simulated: closed forms only, in well under a second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sim.analytic import roofline, sizing
from sim.errors import InputError
from sim.scenario.deployment import Deployment, deploy
from sim.scenario.explain_pauses import Contexts, called, pauses
from sim.scenario.rows import Row
from sim.scenario.tier_use import unwritten
from sim.scenario.typical import Typical, typical
from sim.timing import MeasuredCost, StepCost, build
from sim.timing.block_size import REFERENCE, source_of

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Contexts that are looked at, in tokens, as far as the model takes them.
CONTEXTS = (8_192, 32_768, 131_072)

#: Bytes of the smallest piece for which a link's rate was measured.
SMALLEST_PIECE = 4096

#: Share of a context that all trajectories have in common where sharing is looked at.
SHARED = 0.75


def explain(scenario: Scenario) -> dict[str, Any]:
    """Work out what a scenario's figures imply.

    Parameters
    ----------
    scenario
        A loaded scenario. Of its workload the first agents are looked at, for the contexts they have.

    Returns
    -------
    dict
        ``scenario`` (its name), ``rows`` (a list of `Row`, grouped by section), ``binds`` (what limits the number of
        trajectories first), ``context`` (at contexts of so many tokens: the mean of these agents) and
        ``assumptions`` (a list of sentences).

    Raises
    ------
    InputError
        The model does not fit its hardware; see `deploy`.
    """
    place = deploy(scenario)
    cost = build(scenario.timing, place)
    most = place.model.context_limit
    contexts = {tokens: _k(tokens) for tokens in [tokens for tokens in CONTEXTS if tokens <= most] or [most]}
    said, own, shown = [], [], [_middle(contexts)]
    shared = {tokens: int(tokens * SHARED) for tokens in contexts}
    middle = shown[0]
    try:
        agents = typical(scenario, most)
    except InputError as error:
        said = [f"The scenario's own agents are not looked at: {error}."]
    else:
        own, shown = list(_agents(agents)), sorted({*shown, agents.mean})
        middle = agents.mean
        shared[agents.mean] = agents.shared
        contexts = dict(sorted((contexts | {agents.mean: f"{_k(agents.mean)} (these agents)"}).items()))
    limits = _limits(scenario, place, cost, contexts)
    binds = {tokens: min(found, key=lambda name: found[name]) for tokens, found in limits.items()}
    rows = [*_hardware(place), *own, *_memory(place, contexts), *_pool(place, scenario.engine.pool is not None),
            *_buffers(place, contexts), *_ceilings(scenario, place, contexts, shared, shown),
            *_times(scenario, place, cost, contexts),
            *pauses(scenario, place, contexts, lambda tokens: _prefill_s(cost, tokens, _budget(scenario))),
            *_binding(limits, binds, contexts)]
    return {"scenario": scenario.name, "rows": rows, "binds": binds[middle], "context": contexts[middle],
            "assumptions": [*_assumptions(scenario, place, cost), *said]}


def _middle(contexts: Contexts) -> int:
    return list(contexts)[len(contexts) // 2]


def _k(tokens: int) -> str:
    return f"{tokens / 1024:.1f}".removesuffix(".0") + "k"


def _agents(found: Typical) -> Iterator[Row]:
    section, how = "this scenario's agents", f"over {found.turns:,} turns of the first {found.agents} agents"
    yield Row(section, "context of a turn, mean", found.mean, "tokens", f"prompt and kept output, {how}")
    yield Row(section, "context of a turn, median", found.median, "tokens", f"prompt and kept output, {how}")
    yield Row(section, "first tokens that all share", found.shared, "tokens", f"of their first prompts, {how}")
    yield Row(section, "turns of an agent, mean", found.turns / found.agents, "turns", how)


def _hardware(place: Deployment) -> Iterator[Row]:
    section = "hardware"
    node, sources = place.node, place.node.sources
    yield Row(section, "nodes", f"{place.nodes} x {node.name}, {node.gpus} x {place.gpu.name} each", "",
              node.unit if node.unit != "node" else "hardware, nodes")
    yield Row(section, "replicas", place.replicas, "",
              f"{place.replicas_per_node} a node, tp {place.tp} x pp {place.pp}")
    yield Row(section, "peak arithmetic of a replica", place.peak_flops, "FLOP/s",
              f"datasheet, weights in {place.weights_dtype}")
    yield Row(section, "HBM bandwidth of a replica", place.hbm_Bps, "B/s", "datasheet")
    yield Row(section, "ridge point", roofline.ridge_point(place.peak_flops, place.hbm_Bps), "FLOP/B",
              "peak arithmetic / HBM bandwidth")
    yield Row(section, "link to the host, out", place.host_link_Bps_out, "B/s", f"{node.host_link.kind}, achieved")
    yield Row(section, "link to the host, in", place.host_link_Bps_in, "B/s", f"{node.host_link.kind}, achieved")
    yield Row(section, "price", place.price_usd_per_gpu_hour * place.gpus, "USD/h",
              sources.get("price_usd_per_gpu_hour", "as given"))


def _memory(place: Deployment, contexts: Contexts) -> Iterator[Row]:
    section, model = "model", place.model
    copies = f" x {place.kv_copies:g} copies" if place.kv_copies != 1 else ""
    form = "L (kv_lora_rank + rope_dim) b" if model.mla else "2 L H_kv d b"
    yield Row(section, "weights", place.weight_bytes, "B",
              f"{model.n_params / 1e9:.4g} billion parameters in {place.weights_dtype}")
    yield Row(section, "KV of a token", place.kv_bytes_per_token, "B/token",
              f"{form}, L {place.full_layers}, {place.kv_dtype}{copies}")
    if place.state_bytes_per_sequence:
        yield Row(section, "state of a sequence", place.state_bytes_per_sequence, "B",
                  "sliding windows and linear-attention states")
    for tokens in contexts:
        yield Row(section, f"trajectory of {contexts[tokens]}", place.kv_bytes(tokens), "B",
                  "tokens x KV of a token + state")


def _pool(place: Deployment, given: bool) -> Iterator[Row]:
    section = "pool"
    if place.over_hbm_bytes:
        yield Row(section, "WHAT-IF: beyond HBM", place.over_hbm_bytes, "B",
                  "weights and engine.pool together exceed the HBM of a replica")
    yield Row(section, "KV pool of a replica", place.pool_bytes, "B",
              "engine.pool" if given else "C_HBM u - weights - activations - runtime, all GPUs")
    if not given:
        yield Row(section, "activations of a replica", place.activation_bytes, "B",
                  "2 T (4 d_model + 3 d_ff / TP) + 8 max_seqs vocab a GPU, or engine.activations")
        yield Row(section, "runtime of a replica", place.runtime_bytes, "B", "engine.runtime a GPU")
    yield Row(section, "block", place.block_bytes, "B", f"{place.block_size} tokens")
    yield Row(section, "blocks", place.pool_blocks, "blocks", "pool / block")
    yield Row(section, "tokens", place.pool_blocks * place.block_size, "tokens", "blocks x block size")


def _buffers(place: Deployment, contexts: Contexts) -> Iterator[Row]:
    if place.allocator.paged:
        return
    slots = {tokens: place.trajectory_bytes(tokens) for tokens in contexts if place.fit(tokens)}
    for tokens, size in slots.items():
        useful = tokens * place.block_bytes / size
        yield Row("pool", f"buffer of {contexts[tokens]}", size, "B",
                  f"{place.allocator.kind}; {useful:.1%} of it useful")


def _fit(scenario: Scenario, place: Deployment, tokens: int, shared: int = 0) -> int:
    """Return how many contexts of `tokens`, `shared` of them common to all, one replica holds."""
    return place.fit(tokens, shared, scenario.engine.headroom)


def _ceilings(scenario: Scenario, place: Deployment, contexts: Contexts, common: dict[int, int],
              in_tiers: list[int]) -> Iterator[Row]:
    section = "trajectories that fit"
    pool = f"pool x {1 - scenario.engine.headroom:g}" if scenario.engine.headroom else "pool"
    for tokens in contexts:
        yield Row(section, f"{contexts[tokens]} each", _fit(scenario, place, tokens) * place.replicas, "trajectories",
                  f"{pool} / trajectory, floored, x replicas")
    for tokens in contexts if place.allocator.paged else ():
        shared = common[tokens]
        if not shared:
            continue
        yield Row(section, f"{contexts[tokens]} each, {_k(shared)} shared by all",
                  _fit(scenario, place, tokens, shared) * place.replicas, "trajectories",
                  f"({pool} - shared) / (trajectory - shared), floored, x replicas")
    for name, at in place.tiers.items():
        for tokens in in_tiers if at.capacity_bytes else ():
            everywhere = name == "remote"
            yield Row(section, f"{contexts[tokens]} each, in {called(name)}",
                      sizing.concurrency(at.capacity_bytes, place.stored_bytes(tokens))
                      * (1 if everywhere else place.nodes), "trajectories",
                      f"tiers.{name}.capacity / trajectory, floored{'' if everywhere else ', x nodes'}")


def _prefill_s(cost: StepCost, tokens: int, budget: int) -> float:
    """Return the seconds to compute a prompt of `tokens` alone, in chunks of at most `budget`."""
    return sum(cost.step(0, 0, [(min(budget, tokens - past), past)]) for past in range(0, tokens, budget))


def _times(scenario: Scenario, place: Deployment, cost: StepCost, contexts: Contexts) -> Iterator[Row]:
    section, budget, timing = "step times", _budget(scenario), scenario.timing.roofline
    each = f"roofline: FLOP / (peak x {timing.mfu:g}) against bytes / (bandwidth x {timing.mbu:g})"
    measured = scenario.timing.measured
    models = [("", cost, "as many as fit a replica; ", f"measured: {measured}" if measured else each)]
    if measured:
        plain = build(scenario.timing.model_copy(update={"measured": None}), place)
        models.append((", by the roofline", plain, "", each))
    for suffix, model, _, _ in models:
        if model.attention_efficiency == 1.0:
            continue
        profile = model.profile.block_efficiency if isinstance(model, MeasuredCost) else {}
        yield Row(section, f"attention efficiency, blocks of {place.block_size}{suffix}",
                  model.attention_efficiency, "",
                  f"rate of KV reads, blocks of {REFERENCE} = 1; {source_of(profile, place.block_size)}")
    if place.step_overhead_s:
        yield Row(section, "overhead of every step", place.step_overhead_s, "s",
                  f"engine.step_overhead{', beside what the profile holds' if measured else ''}; in all times below")
    for suffix, model, _, how in models:
        yield Row(section, f"decode step, 1 turn at an empty context{suffix}", model.step(1, 0), "s", how)
    balance = roofline.compute_bound_tokens(place.n_active_params, place.step_weight_bytes(1e9) * place.pp,
                                            place.peak_flops, place.hbm_Bps, timing.mfu, timing.mbu)
    yield Row(section, "tokens a step from which linear layers are compute-bound", balance, "tokens",
              "weights / bandwidth = 2 N_active T / peak, solved for T")
    for tokens in contexts:
        count = min(_fit(scenario, place, tokens), scenario.engine.schedule.max_seqs)
        for suffix, model, why, _ in models if count else []:
            yield Row(section, f"decode step, {count} turn{'s' * (count > 1)} at {contexts[tokens]}{suffix}",
                      model.step(count, count * tokens), "s",
                      f"{why}bound by {model.bound(count, count * tokens)}")
    for tokens in contexts:
        for suffix, model, _, _ in models:
            yield Row(section, f"prefill of {contexts[tokens]}, nothing cached{suffix}",
                      _prefill_s(model, tokens, budget), "s",
                      f"in chunks of {budget}" if budget < tokens else "in one step")


def _budget(scenario: Scenario) -> int:
    """Return the tokens of a prompt that one step takes at most."""
    schedule = scenario.engine.schedule
    return schedule.token_budget if schedule.policy == "chunked" else CONTEXTS[-1] * 1024


def _limits(scenario: Scenario, place: Deployment, cost: StepCost, contexts: Contexts) -> dict[int, dict[str, int]]:
    """Return, for each context, how many turns a replica can decode at once under each limit."""
    engine = scenario.engine
    limits: dict[int, dict[str, int]] = {}
    for tokens in contexts:
        found = {"KV pool": _fit(scenario, place, tokens), "max_seqs": engine.schedule.max_seqs}
        if engine.max_trajectories is not None:
            found["max_trajectories"] = engine.max_trajectories
        itl_s = min((scenario.slo.get("itl") or {}).values(), default=None)
        if itl_s is not None:
            found["itl objective"] = _most_within(itl_s, cost, tokens, 2 * max(found.values()))
        limits[tokens] = found
    return limits


def _most_within(limit_s: float, cost: StepCost, context: int, most: int) -> int:
    """Return the largest batch, up to `most`, whose decode step takes `limit_s` at most."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if cost.step(middle, middle * context) <= limit_s:
            low = middle
        else:
            high = middle - 1
    return low


def _binding(limits: dict[int, dict[str, int]], binds: dict[int, str], contexts: Contexts) -> Iterator[Row]:
    for tokens, found in limits.items():
        every = ", ".join(f"{name} {count}" for name, count in sorted(found.items(), key=lambda item: item[1]))
        yield Row("binds first", f"decoding at {contexts[tokens]}", binds[tokens], "", f"turns a replica: {every}")


def _measured(cost: MeasuredCost) -> list[str]:
    """Return where measured step times come from, how far they are off, and what stands in for what."""
    errors = ", ".join(f"{name.replace('_', ' ')} {error['median']:.1%}" for name, error in cost.error.items()
                       if "/" not in name and "," not in name)
    source = cost.profile.provenance.get("source", "unknown")
    return [f"Step times are those of {cost.profile.name} ({source}); median error on points not fitted: {errors}.",
            *(f"Not measured: {text}." for text in cost.substitutions)]


def _copies(scenario: Scenario, place: Deployment) -> str:
    """Return how large the pieces of a copy are and what they make of the host link."""
    share = place.copy_efficiency
    dram = scenario.tiers.dram
    if dram is not None and dram.method == "staged":
        return f"Pieces are gathered in HBM and copied together, at {share:.0%} of the host link's rate."
    if math.isinf(place.piece_bytes):
        return f"A context is copied out of its buffer in one go, at {share:.0%} of the host link's rate."
    text = f"Copies go in pieces of {place.piece_bytes:,.0f} bytes a GPU, at {share:.0%} of the host link's rate"
    return f"{text}{'; no link was measured with pieces so small' if place.piece_bytes < SMALLEST_PIECE else ''}."


def _assumptions(scenario: Scenario, place: Deployment, cost: StepCost) -> list[str]:
    timing = scenario.timing.roofline
    how = ("the larger of all compute and all memory traffic" if timing.mode == "max" else
           "summed over kernel classes, with collectives")
    times = [f"Step times are a roofline at MFU {timing.mfu:g} and MBU {timing.mbu:g}, {how}."]
    said = [*(_measured(cost) if isinstance(cost, MeasuredCost) else times),
            f"Where sharing is looked at, {SHARED:.0%} of each context is common to all trajectories; of these agents' "
            "own what their first prompts share.",
            "Link and storage rates are of one replica moving alone."]
    if place.tiers:
        said.append(_copies(scenario, place))
    said += [f"The tier {name} would stay empty: {why}." for name, why in unwritten(scenario).items()]
    if place.model.mla and place.tp > 1:
        said.append(f"The latent of a token is held by each of the {place.tp} GPUs of a tensor-parallel group.")
    elif place.kv_copies > 1:
        said.append(f"With more GPUs than KV heads each head is held {place.kv_copies:g} times.")
    return said
