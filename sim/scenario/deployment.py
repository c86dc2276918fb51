"""A scenario's hardware, worked out: what one replica has for weights, KV and traffic, in plain SI numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hardware_profiles import GpuProfile, ModelProfile, NodeProfile
from hardware_profiles import model as model_named
from hardware_profiles import node as node_named
from hardware_profiles.dtypes import DTYPE_BYTES
from sim.analytic import sizing
from sim.errors import InputError
from sim.scenario.allocators import Allocator, Static
from sim.scenario.host_copies import host_copies
from sim.scenario.located import located
from sim.scenario.tier_places import TierPlace, places
from sim.units import GiB

if TYPE_CHECKING:
    from sim.scenario.model import Scenario


@dataclass(frozen=True)
class Deployment:
    """What the simulator needs to know of model and hardware. "Replica" figures are of all its GPUs together.

    Attributes
    ----------
    model, node, gpu
        The profiles it was worked out from.
    weights_dtype, kv_dtype
        Formats of weights and KV.
    nodes, replicas, replicas_per_node
        How many nodes, replicas on all of them, replicas on each.
    tp, pp, gpus_per_replica, gpus
        Degrees of parallelism; GPUs of a replica (``tp * pp``); all GPUs of all nodes, used or not: they are paid for.
    pool_bytes, block_size, block_bytes, pool_blocks
        KV pool of a replica; tokens and bytes of a block; whole blocks the pool holds. With layers that do not divide
        by `pp` the fullest stage sets `pool_blocks`. With a contiguous allocator a block is the slot of one token.
    lookup_tokens
        Tokens that attention finds by one look-up; 0 if their number makes no difference to it.
    allocator
        How the pool is divided, with what the model decides filled in.
    kv_bytes_per_token
        Bytes each further token takes, copies between GPUs included (see `ModelProfile.kv_copies`).
    kv_copies
        How often the GPUs together hold each KV byte.
    state_bytes_per_sequence
        Bytes a sequence takes whatever its length: sliding windows and linear states.
    weight_bytes, activation_bytes, runtime_bytes
        Weights, peak activations, and driver and library buffers of a replica.
    n_params, n_active_params, n_layers, full_layers, window_layers, window, n_kv_heads, d_model, d_attn
        The model's geometry: parameters, those a token passes through; layers, those with full attention, those with
        a sliding window, and its tokens (0 without); KV heads, width of the hidden state, and n_heads * head_dim.
    peak_flops, hbm_Bps
        Peak arithmetic of a replica in the format its weights are multiplied in, FLOP/s, and its HBM bandwidth.
    nvlink_Bps
        Bandwidth between GPUs, each way and GPU; that of the host link where there is no NVLink.
    host_link_Bps_out, host_link_Bps_in, host_link_Bps_both
        Bandwidth between the replica and host memory, all its links moving their shards in step, capped by host
        memory's own bandwidth; `both` caps the sum of the two ways.
    host_link_latency_s
        Fixed cost of a transfer.
    piece_bytes
        Contiguous bytes of a copy on one GPU, infinite where they are a whole context's; the host link's rates are
        those of such pieces.
    step_overhead_s
        Seconds added to every step, whatever is in it.
    step_slowdown
        Share by which steps take longer while a copy runs.
    dram_Bps
        Bandwidth of host memory.
    tiers
        The tiers that the scenario has: what a node gives them, and the rates of their own links.
    price_usd_per_gpu_hour
        Price of a GPU for an hour.
    """

    model: ModelProfile
    node: NodeProfile
    gpu: GpuProfile
    weights_dtype: str
    kv_dtype: str
    nodes: int
    replicas: int
    replicas_per_node: int
    tp: int
    pp: int
    gpus_per_replica: int
    gpus: int
    pool_bytes: int
    block_size: int
    lookup_tokens: int
    block_bytes: int
    pool_blocks: int
    allocator: Allocator
    kv_bytes_per_token: float
    kv_copies: float
    state_bytes_per_sequence: int
    weight_bytes: int
    activation_bytes: int
    runtime_bytes: int
    n_params: int
    n_active_params: int
    n_layers: int
    full_layers: int
    window_layers: int
    window: int
    n_kv_heads: int
    d_model: int
    d_attn: int
    peak_flops: float
    hbm_Bps: float
    nvlink_Bps: float
    host_link_Bps_out: float
    host_link_Bps_in: float
    host_link_Bps_both: float
    host_link_latency_s: float
    piece_bytes: float
    step_overhead_s: float
    step_slowdown: float
    dram_Bps: float
    tiers: Mapping[str, TierPlace]
    price_usd_per_gpu_hour: float

    @property
    def dram_bytes(self) -> int:
        """Host memory of a node given to the DRAM tier; 0 without the tier."""
        return int(self.tiers["dram"].capacity_bytes) if "dram" in self.tiers else 0

    @property
    def over_hbm_bytes(self) -> int:
        """Bytes by which weights and a given `engine.pool` exceed the HBM of a replica; 0 where they fit."""
        return max(0, self.weight_bytes + self.pool_bytes - int(self.gpu.hbm_bytes) * self.gpus_per_replica)

    @property
    def copy_efficiency(self) -> float:
        """Share of the host link's rate (or of host memory's) that copies out reach, with their pieces and method."""
        return self.host_link_Bps_out / min(self.gpus_per_replica * self.node.host_link.out_Bps,
                                            self.dram_Bps or math.inf)

    def step_weight_bytes(self, tokens: float) -> float:
        """Return the weight bytes a step of `tokens` tokens reads (of the experts, those expected to be touched)."""
        return self.model.step_weight_bytes(tokens, self.weights_dtype)

    def kv_bytes(self, tokens: int) -> float:
        """Return the bytes a context of `tokens` tokens takes over all GPUs, without the tail of its last block."""
        return self.model.kv_bytes(tokens, self.kv_dtype, self.tp)

    def trajectory_bytes(self, tokens: int) -> int:
        """Return the pool bytes a context of `tokens` tokens takes: whole blocks or a buffer, and its state."""
        if not self.allocator.paged:
            return self.allocator.slots(tokens, self.state_slots) * self.block_bytes
        return -(-tokens // self.block_size) * self.block_bytes + self.state_bytes_per_sequence

    def stored_bytes(self, tokens: int) -> int:
        """Return the bytes a context of `tokens` tokens takes below HBM: of a buffer only what is in it."""
        return self.trajectory_bytes(tokens) if self.allocator.paged else tokens * self.block_bytes

    def fit(self, tokens: int, shared: int = 0, headroom: float = 0.0) -> int:
        """Return how many contexts of `tokens` tokens the pool of a replica holds.

        Parameters
        ----------
        shared
            Tokens that all of them begin with; they are there once if the allocator shares blocks.
        headroom
            Share of the pool that stays free.
        """
        if isinstance(self.allocator, Static) and tokens > self.allocator.slots(0):
            return 0
        common = shared // self.block_size * self.block_bytes if self.allocator.paged else 0
        return sizing.shared_concurrency(self.pool_blocks * self.block_bytes, common,
                                         max(self.trajectory_bytes(tokens) - common, 1), headroom)

    @property
    def state_slots(self) -> int:
        """Blocks (or slots) that the state of a sequence takes."""
        return -(-self.state_bytes_per_sequence // self.block_bytes)


def deploy(scenario: Scenario) -> Deployment:
    """Work out what a scenario's replicas have.

    Parameters
    ----------
    scenario
        A loaded scenario. Its model and hardware may be catalogue names or inline profiles.

    Returns
    -------
    Deployment
        One for all replicas: they are alike.

    Raises
    ------
    InputError
        The model does not fit, the GPUs do not suffice for a replica, heads or layers cannot be divided, or a tier is
        larger than what the node has. Of a scenario that was loaded it says where.
    """
    with located(scenario):
        return _deploy(scenario)


def _deploy(scenario: Scenario) -> Deployment:
    model = model_named(scenario.model) if isinstance(scenario.model, str) else scenario.model
    node = node_named(scenario.hardware) if isinstance(scenario.hardware, str) else scenario.hardware
    tp, pp = scenario.parallelism.tp, scenario.parallelism.pp
    per_node = _replicas_per_node(scenario, node)
    _check_divisible(model, tp, pp)
    group = tp * pp
    weights = math.ceil(model.weight_bytes(scenario.weights_dtype))
    activations = math.ceil(_activations(scenario, model, tp))
    runtime = int(scenario.engine.runtime)
    pool = _pool(scenario, model, node, weights / group, activations, runtime)
    copies = model.kv_copies(tp)
    token_bytes = model.kv_bytes_per_token(scenario.kv_dtype) * copies
    block = max(1, math.ceil(sizing.block_bytes(scenario.engine.slot_tokens, token_bytes)))
    fullest_stage = pp * math.ceil(model.n_layers / pp) / model.n_layers
    moves = host_copies(scenario, model, node, block / group)
    rates = moves.rates
    cap = node.host_dram_Bps or math.inf
    found = Deployment(
        model=model, node=node, gpu=node.gpu, weights_dtype=scenario.weights_dtype, kv_dtype=scenario.kv_dtype,
        nodes=scenario.nodes, replicas=per_node * scenario.nodes, replicas_per_node=per_node,
        tp=tp, pp=pp, gpus_per_replica=group, gpus=node.gpus * scenario.nodes,
        pool_bytes=pool, block_size=scenario.engine.slot_tokens, lookup_tokens=scenario.engine.lookup_tokens,
        block_bytes=block,
        pool_blocks=_pool_blocks(scenario, model, pool, block * fullest_stage),
        allocator=scenario.engine.allocator.resolved(model.context_limit),
        kv_bytes_per_token=token_bytes, kv_copies=copies,
        state_bytes_per_sequence=model.state_bytes(scenario.kv_dtype, tp),
        weight_bytes=weights, activation_bytes=activations * group, runtime_bytes=runtime * group,
        n_params=model.n_params, n_active_params=model.n_active_params, n_layers=model.n_layers,
        full_layers=model.full_layers, window_layers=model.sliding.layers if model.sliding else 0,
        window=model.sliding.window if model.sliding else 0,
        n_kv_heads=model.n_kv_heads, d_model=model.d_model, d_attn=model.d_attn,
        peak_flops=node.gpu.flops(scenario.weights_dtype) * group, hbm_Bps=node.gpu.hbm_Bps * group,
        nvlink_Bps=node.gpu.nvlink_Bps or min(node.host_link.out_Bps, node.host_link.in_Bps),
        host_link_Bps_out=min(group * rates.out_Bps, cap), host_link_Bps_in=min(group * rates.in_Bps, cap),
        host_link_Bps_both=min(group * rates.both_Bps, cap), host_link_latency_s=moves.latency_s,
        piece_bytes=moves.piece_bytes, step_overhead_s=scenario.engine.step_overhead, step_slowdown=moves.slowdown,
        dram_Bps=node.host_dram_Bps,
        tiers=places(scenario, node, pool * per_node),
        price_usd_per_gpu_hour=node.price_usd_per_gpu_hour,
    )
    found.allocator.check(found.pool_blocks, found.state_slots)
    return found


def _replicas_per_node(scenario: Scenario, node: NodeProfile) -> int:
    tp, pp = scenario.parallelism.tp, scenario.parallelism.pp
    most = node.gpus // (tp * pp)
    if most == 0:
        raise InputError(f"a replica of tp {tp} x pp {pp} needs {tp * pp} GPUs and must fit one {node.name} "
                         f"({node.unit}), which has {node.gpus}", field="parallelism", got=f"tp {tp}, pp {pp}")
    if scenario.replicas is None:
        return most
    if scenario.replicas > most:
        raise InputError(f"{node.name} has {node.gpus} GPUs, room for {most} replica(s) of {tp * pp}",
                         field="replicas", got=scenario.replicas)
    return scenario.replicas


def _check_divisible(model: ModelProfile, tp: int, pp: int) -> None:
    if model.n_heads % tp:
        raise InputError(f"must divide the {model.n_heads} attention heads of {model.name}",
                         field="parallelism.tp", got=tp)
    if not model.mla and model.n_kv_heads % tp and tp % model.n_kv_heads:
        raise InputError(f"must divide, or be a multiple of, the {model.n_kv_heads} KV heads of {model.name}",
                         field="parallelism.tp", got=tp)
    if pp > model.n_layers:
        raise InputError(f"{model.name} has only {model.n_layers} layers", field="parallelism.pp", got=pp)


def _activations(scenario: Scenario, model: ModelProfile, tp: int) -> float:
    """Return the activation bytes of a GPU: given, or `sizing.activation_bytes` at the schedule's limits."""
    if scenario.engine.activations is not None:
        return scenario.engine.activations
    schedule = scenario.engine.schedule
    return sizing.activation_bytes(schedule.token_budget, schedule.max_seqs, model.d_model, model.d_ff,
                                   model.vocab, tp)


def _pool(scenario: Scenario, model: ModelProfile, node: NodeProfile, weights: float, activations: float,
          runtime: float) -> int:
    """Return the pool of a replica; `weights`, `activations` and `runtime` are bytes a GPU."""
    group, given = scenario.parallelism.tp * scenario.parallelism.pp, scenario.engine.pool
    usable = node.gpu.hbm_bytes * (scenario.engine.memory_utilization if given is None else 1)
    pool = sizing.device_pool_bytes(node.gpu.hbm_bytes, usable / node.gpu.hbm_bytes, weights, activations, runtime)
    if pool <= 0 if given is None else weights > usable:
        needs = (f"{weights / GiB:.1f} GiB for weights alone" if given is not None else
                 f"{weights / GiB:.1f} GiB for weights, {activations / GiB:.1f} for activations and "
                 f"{runtime / GiB:.1f} for the runtime")
        raise InputError(
            f"{model.name} in {scenario.weights_dtype} leaves no room for KV: a GPU needs {needs}, and may use "
            f"{usable / GiB:.1f}; use more GPUs a replica or a smaller weights_dtype ({', '.join(DTYPE_BYTES)})",
            field="parallelism", got=f"tp {scenario.parallelism.tp}, pp {scenario.parallelism.pp}")
    return int(pool * group if given is None else given)


def _pool_blocks(scenario: Scenario, model: ModelProfile, pool: int, block: float) -> int:
    blocks = sizing.pool_blocks(pool, block)
    if blocks == 0:
        field = "engine.block_size" if scenario.engine.pool is None else "engine.pool"
        raise InputError(f"the KV pool of {pool} bytes does not hold one block of {math.ceil(block)} bytes "
                         f"({scenario.engine.slot_tokens} tokens of {model.name})", field=field)
    return blocks
