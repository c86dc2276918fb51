"""Build the cluster of a scenario, run it, and add up what it did."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import simpy

from sim.engine.buffer_pauses import BufferPauses
from sim.engine.buffers import BufferReplica
from sim.engine.cluster import Cluster
from sim.engine.dividing import buffer_cache, buffer_counts
from sim.engine.host import Host, HostConfig, TierConfig
from sim.engine.pauses import Pauses
from sim.engine.replica import Replica
from sim.engine.transfers import Transfers
from sim.engine.write_backs import Writes
from sim.errors import InputError
from sim.memory.allocators.paged import BlockPool
from sim.memory.cached_trees import tree_of
from sim.memory.kv_cache import KvCache
from sim.memory.links import Link
from sim.memory.tiers import Tier
from sim.policies.prediction import Predictor
from sim.policies.prediction.base import Declared
from sim.records import TIERS, RunTotals, Sink
from sim.scenario.deployment import Deployment, deploy
from sim.scenario.extent import DEFAULT_DURATION_S
from sim.scenario.model import Scenario
from sim.timing import build
from sim.timing.base import StepCost
from workloads.config import TraceConfig
from workloads.trajectory import Workload

Progress = Callable[[float, int], None]


def simulate(scenario: Scenario, workload: Workload, sink: Sink, replication: int = 0,
             progress: Progress | None = None, *, stretches: bool = True) -> RunTotals:
    """Run one replication of a scenario.

    Parameters
    ----------
    scenario
        What to simulate.
    workload
        Where trajectories come from; an endless one needs a duration (the default is one hour).
    sink
        Takes the records.
    replication
        Number of the repetition; with the scenario's seed it keys all randomness.
    progress
        Called with the simulated time and the trajectories ended, each time one ends.
    stretches
        False executes every step as an event of its own: slower, same results.

    Returns
    -------
    RunTotals
        Counts, histograms and integrals.

    Raises
    ------
    InputError
        If the model does not fit, or the workload holds no trajectory.
    """
    deployment = deploy(scenario)
    env = simpy.Environment()
    declared: Declared = getattr(workload, "declared_waits", {})
    cluster = _assemble(env, scenario, deployment, sink, declared, stretches)
    cluster.progress = progress
    cluster.feed(workload.trajectories(scenario.seed, replication), workload.closed)
    duration_s = run_length_s(scenario)
    with _rare_collection():
        env.run(until=duration_s)
    if not cluster.started:
        raise InputError("no trajectory arrives in the time simulated", field="workload")
    if cluster.rejected and not cluster.finished and not cluster.sessions:
        cluster.refuse_all()
    return _finish(cluster, deployment, env.now)


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Let the garbage collector look rarely: a run makes hardly any cycles, and looking costs a quarter of its time."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_length_s(scenario: Scenario) -> float | None:
    """Return the simulated time a scenario asks for; None runs a trace to its end."""
    if scenario.duration is not None:
        return scenario.duration
    return None if isinstance(scenario.workload.agents, TraceConfig) else DEFAULT_DURATION_S


def _assemble(env: simpy.Environment, scenario: Scenario, deployment: Deployment, sink: Sink, declared: Declared,
              stretches: bool) -> Cluster:
    engine = scenario.engine
    limit = engine.max_trajectories
    cluster = Cluster(env, sink, scenario.routing, None if limit is None else limit * deployment.replicas)
    cost = build(scenario.timing, deployment)
    cluster.request_s = cost.ttft_floor_s
    predictor = scenario.retention.predictor.start(declared)
    shared: dict[str, Tier] = {}
    for index in range(deployment.replicas):
        if index % deployment.replicas_per_node == 0:
            host = Host(env, _host_config(scenario, deployment), deployment.block_bytes, shared)
            shared = {"remote": host.tier("remote")}
        cluster.replicas.append(_replica(env, cluster, index, scenario, deployment, host, cost, predictor, sink,
                                         stretches))
    return cluster


def _replica(env: simpy.Environment, cluster: Cluster, index: int, scenario: Scenario, deployment: Deployment,
             host: Host, cost: StepCost, predictor: Predictor, sink: Sink, stretches: bool) -> Replica:
    engine, cache = scenario.engine, scenario.engine.prefix_cache
    total = deployment.pool_blocks
    place = (env, cluster, index)
    served = (cost, engine.schedule, sink)
    options: dict[str, Any] = {
        "headroom_blocks": int(engine.headroom * total), "low_blocks": int(cache.low_watermark * total),
        "high_blocks": int(cache.high_watermark * total),
        "block_copy_s": 2.0 * deployment.block_bytes / deployment.hbm_Bps, "layers": deployment.n_layers,
        "context_limit": deployment.model.context_limit, "step_slowdown": deployment.step_slowdown,
        "stretches": stretches}
    writes = _writes(scenario)
    replica = (Replica(*place, _paged(scenario, deployment), *served, **options) if deployment.allocator.paged
               else BufferReplica(*place, buffer_cache(deployment), *served, **options))
    kv = replica.kv
    link = Link(env, deployment.host_link_Bps_out, deployment.host_link_Bps_in, deployment.host_link_latency_s,
                deployment.host_link_Bps_both, host.bus)
    transfers = Transfers(env, index, link, host, deployment.block_bytes, sink)
    pauses = Pauses if deployment.allocator.paged else BufferPauses
    replica.attach(pauses(env, replica, kv, transfers, cost, scenario.retention, predictor, sink, writes=writes))
    return replica


def _paged(scenario: Scenario, deployment: Deployment) -> KvCache:
    """Return an empty pool of blocks with its prefix cache."""
    cache = scenario.engine.prefix_cache
    pool = BlockPool(deployment.pool_blocks, deployment.block_size)
    tree = tree_of(pool, cache.eviction, whole_nodes=cache.granularity == "node", exact_tail=cache.tail == "cow")
    return KvCache(pool, tree, enabled=cache.enabled, on_chunk=cache.insert == "on_chunk",
                   state_blocks=deployment.state_slots)


def _host_config(scenario: Scenario, deployment: Deployment) -> HostConfig:
    """Return sizes and rates of a node's tiers below HBM."""
    tiers = {}
    for name, at in deployment.tiers.items():
        given = getattr(scenario.tiers, name)
        tiers[name] = TierConfig(
            at.capacity_bytes, at.out_Bps, at.in_Bps, at.latency_s, direct=getattr(given, "direct", False),
            evict_to="" if given.evict_to == "nowhere" else given.evict_to, low_fraction=given.low_watermark,
            high_fraction=given.high_watermark, exclusive=given.exclusive, eviction=given.eviction,
            least_tokens=given.min_load)
    return HostConfig(tiers, deployment.dram_Bps, block_tokens=deployment.block_size,
                      private=not deployment.allocator.paged)


def _writes(scenario: Scenario) -> Writes:
    """Return when contexts are written to DRAM."""
    dram = scenario.tiers.dram
    if dram is None:
        return Writes()
    return Writes(dram.write, dram.min_uses, dram.prompt_only, dram.unit, dram.write_ahead)


def _finish(cluster: Cluster, deployment: Deployment, end_s: float) -> RunTotals:
    """Close the books."""
    for session in list(cluster.sessions.values()):
        session.abandon()
    totals = RunTotals(end_s=end_s, replicas=len(cluster.replicas),
                       pool_bytes=deployment.pool_blocks * deployment.block_bytes)
    for replica in cluster.replicas:
        replica.accounts.close(end_s)
        for row in replica.accounts.samples:
            cluster.sink.sample(row)
        totals.spaces.extend(replica.accounts.spaces.rows())
        totals.steps += replica.steps
        totals.itl_windows.extend(replica.accounts.latencies.token_gaps())
        totals.step_windows.extend(replica.accounts.latencies.step_times())
        for name, seconds in replica.bound_s.items():
            totals.bound_s[name] = totals.bound_s.get(name, 0.0) + seconds
    cost = cluster.replicas[0].cost
    totals.counts = _counts(cluster) | cost.warnings()
    totals.band = cost.band
    totals.pool_tokens = deployment.pool_blocks * deployment.block_size
    totals.piece_tokens = deployment.block_size if deployment.allocator.paged else 0
    totals.prediction_error = _prediction_error(cluster)
    totals.breakers = dict(sorted(cluster.breakers.items(), key=lambda item: -item[1])[:10])
    totals.alive_integral_s = cluster.alive_integral_s(end_s)
    totals.alive_max = cluster.alive_max
    totals.events = sum(replica.events for replica in cluster.replicas)
    return totals


def _prediction_error(cluster: Cluster) -> dict[str, float]:
    """Return how many waits were predicted, the mean error (expected less true) and its mean size in seconds."""
    pauses = [replica.pauses for replica in cluster.replicas]
    count = sum(p.predictions for p in pauses)
    if not count:
        return {}
    return {"predictions": float(count), "bias_s": sum(p.error_s for p in pauses) / count,
            "mean_absolute_s": sum(p.absolute_error_s for p in pauses) / count}


def _counts(cluster: Cluster) -> dict[str, int]:
    replicas = cluster.replicas
    hosts = {id(replica.pauses.host): replica.pauses.host for replica in replicas}.values()
    written = [replica.pauses.write_backs for replica in replicas if replica.pauses.write_backs is not None]
    return {
        "evictions": sum(replica.kv.tree.evicted for replica in replicas),
        "forced_evictions": sum(replica.pauses.forced for replica in replicas),
        "preemptions": sum(replica.admission.relief.preemptions for replica in replicas),
        "over_context_limit": sum(replica.admission.over_limit for replica in replicas),
        "rejections": sum(replica.admission.rejections for replica in replicas),
        "deadlocks_broken": sum(replica.admission.relief.deadlocks for replica in replicas),
        "cow_copies": sum(replica.kv.copies for replica in replicas),
        "offload_failures": sum(replica.pauses.offload_failures for replica in replicas),
        **{f"{name}_evictions": sum(tier.evicted for tier in {id(t): t for t in (h.tier(name) for h in hosts)}.values())
           for name in TIERS},
        "demotions": sum(host.demoted for host in hosts),
        "written_back_blocks": sum(writes.written for writes in written),
        "evicted_unwritten_blocks": sum(writes.lost for writes in written),
        "evicted_written_blocks": sum(writes.saved for writes in written),
        "write_backs_refused": sum(writes.refused for writes in written),
        "pins_expired": sum(replica.pauses.expired for replica in replicas),
        "prefetches": sum(replica.pauses.prefetches.started for replica in replicas),
        "prefetches_cancelled": sum(replica.pauses.prefetches.cancelled for replica in replicas),
        "prefetches_skipped": sum(replica.pauses.prefetches.skipped for replica in replicas),
        **buffer_counts(replicas),
    }
