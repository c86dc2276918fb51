"""The schema of a scenario: frozen, validated, and its own documentation.

Attribute names are the names used in YAML. A quantity is written as a number in SI or as text with a unit
(``80 GiB``, ``45 s``); in a loaded scenario it is a plain SI number. Only what the simulator can do is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from hardware_profiles.dtypes import KvDtype, WeightsDtype
from sim.errors import InputError
from sim.policies.eviction import Eviction, Lru
from sim.policies.retention import Release, Retention
from sim.policies.routing import Routing, Sticky
from sim.policies.schedule import Chunked, Schedule
from sim.scenario import shorthand
from sim.scenario.allocators import Allocator, Paged
from sim.scenario.catalogue import Hardware, Model, known_agents
from sim.scenario.extent import check_extent, check_warmup
from sim.scenario.problems import Places
from sim.scenario.sweep_axes import check_sweep, check_vary
from sim.scenario.tiers import Tiers
from sim.scenario.watermarks import watermarks_in_order
from sim.timing.block_size import REFERENCE
from sim.timing.measured_profile import measured_name
from sim.units import FRACTION, SECONDS, Bytes, Fraction, GiB, Seconds, parse
from workloads.config import WorkloadConfig

SloMetric = Literal["ttft_first", "ttft_resumed", "ttft", "itl", "tpot", "turn", "trajectory", "goodput"]
SloStatistic = Literal["mean", "p50", "p90", "p95", "p99", "turns", "trajectories"]


def _shares(slo: Any) -> Any:
    """Read the shares under `goodput`, which are fractions and not times."""
    given = slo.get("goodput") if isinstance(slo, dict) else None
    if not isinstance(given, dict):
        return slo
    shares = {}
    for name, share in given.items():
        try:
            shares[name] = parse(share, FRACTION)
        except InputError as error:
            raise InputError(error.reason, field=f"goodput.{name}", got=share) from None
        if not 0 < shares[name] <= 1:
            raise InputError("must be above 0 and at most 1", field=f"goodput.{name}", got=share)
    return {**slo, "goodput": shares}


def _statistics(slo: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Make sure that shares stand under `goodput`, and statistics of a time under the others."""
    for metric, limits in slo.items():
        for name in limits:
            if (name in ("turns", "trajectories")) != (metric == "goodput"):
                known = "turns, trajectories" if metric == "goodput" else "mean, p50, p90, p95, p99"
                raise InputError(f"unknown name; choose from {known}", field=f"{metric}.{name}", got=name)
    return slo


Slo = Annotated[dict[SloMetric, dict[SloStatistic, Annotated[Seconds, Field(gt=0)]]], BeforeValidator(_shares),
                AfterValidator(_statistics)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False,
                              defer_build=True)


class Parallelism(_Config):
    """How one replica is spread over GPUs."""

    tp: int = Field(1, ge=1, le=10_000)
    """Tensor parallelism: GPUs that share every layer."""
    pp: int = Field(1, ge=1, le=10_000)
    """Pipeline parallelism: groups of layers on different GPUs."""


class Roofline(_Config):
    """Step times from datasheet figures and stated efficiencies."""

    mode: Literal["max", "sum"] = "sum"
    """`max`: the longer of all compute and all memory traffic; `sum`: the same kernel class by kernel class, with
    collectives added."""
    mfu: Fraction = Field(0.5, gt=0)
    """Share of the peak compute rate that is reached."""
    mbu: Fraction = Field(0.8, gt=0)
    """Share of the peak memory bandwidth that is reached."""
    collective_latency_s: Seconds = Field(5e-6, ge=0)
    """Start-up time of one all-reduce or stage hand-over (mode `sum`)."""


class Timing(_Config):
    """Where step times come from."""

    roofline: Roofline = Roofline()
    """Datasheet figures and stated efficiencies."""
    measured: Annotated[str, BeforeValidator(measured_name)] | None = None
    """Step times measured on the GPU: the name of a profile in `hardware_profiles/measured` (or a `.json` file of one's
    own); takes the place of the roofline."""


class PrefixCache(_Config):
    """Reuse of prompt prefixes that were computed before."""

    enabled: bool = True
    """Whether prefixes are reused at all."""
    tail: Literal["truncate", "cow"] = "truncate"
    """A match that ends inside a block: round down to whole blocks, or copy the partial block (copy-on-write)."""
    insert: Literal["on_chunk", "on_finish"] = "on_chunk"
    """When a prefix becomes visible to others: as soon as a chunk is computed, or when its turn ends."""
    eviction: Annotated[Eviction, BeforeValidator(shorthand.EVICTION.expand)] = Lru()
    """Which dormant entry goes first."""
    granularity: Literal["block", "node"] = "block"
    """What is evicted at once: the last block of a leaf (vLLM), or the whole leaf (SGLang)."""
    low_watermark: Fraction = 0.0
    """Eviction starts when the free share of the pool falls below this."""
    high_watermark: Fraction = 0.0
    """Eviction goes on until this share of the pool is free."""

    _watermarks_in_order = model_validator(mode="after")(watermarks_in_order)


class Engine(_Config):
    """The serving engine that is imitated: memory, batching, cache."""

    preset: Literal["vllm", "sglang", "trtllm", "lmcache", "hicache"] | None = None
    """Engine whose defaults are taken for everything that the scenario leaves out."""
    block_size: int = Field(16, ge=1, le=65536)
    """Tokens a block of the KV pool holds; a contiguous allocator has none."""
    small_blocks: Literal["slow", "free"] = "slow"
    """What blocks of less than 16 tokens cost decode attention: `slow`, as measured or assumed; `free` for kernels that
    look up every token anyway, as FlashInfer does for SGLang."""
    allocator: Annotated[Allocator, BeforeValidator(shorthand.ALLOCATOR.expand)] = Paged()
    """How the KV pool is divided: `paged`, or in contiguous buffers (`static`, `growth`, `buddy`), which share
    nothing: with them the prefix cache is off unless it is asked for, and asking for it is an error."""
    memory_utilization: Fraction = Field(0.92, gt=0)
    """Share of a GPU's memory that the engine may use in all."""
    headroom: Fraction = Field(0.0, lt=1)
    """Share of the pool that admissions leave free."""
    pool: Annotated[Bytes, Field(gt=0, le=1e18)] | None = None
    """KV pool of a replica, over all its GPUs; overrides the one computed from the memory left. One that does not fit
    beside the weights is taken as a what-if, and `explain` and every summary say by how much it exceeds HBM; weights
    that do not fit by themselves are an error."""
    activations: Annotated[Bytes, Field(ge=0)] | None = None
    """Activation memory of a GPU; when left out, a formula in the token budget."""
    runtime: Bytes = Field(float(2 * GiB), ge=0)
    """Memory of a GPU taken by the CUDA context, graphs and communication buffers."""
    step_overhead: Annotated[Seconds, Field(ge=0, le=1e6)] = 0.0
    """Time added to every step, whatever is in it. A roofline has none of its own, so it is all of scheduling and
    launching; measured step times hold those of the engine measured, so it is what yours takes more, as with a cache
    connector."""
    max_trajectories: Annotated[int, Field(ge=1)] | None = None
    """Trajectories a replica admits at a time; the others wait to start."""
    schedule: Annotated[Schedule, BeforeValidator(shorthand.SCHEDULE.expand)] = Chunked()
    """What a step is made of, and in which order turns wait."""
    prefix_cache: Annotated[PrefixCache, BeforeValidator(shorthand.switch)] = PrefixCache()
    """Reuse of prompt prefixes."""

    @property
    def lookup_tokens(self) -> int:
        """Tokens that attention finds by one look-up; 0 if their number makes no difference to it."""
        free = self.small_blocks == "free" and self.block_size < REFERENCE
        return self.block_size if self.allocator.paged and not free else 0

    @property
    def slot_tokens(self) -> int:
        """Tokens of what the pool is divided into: blocks, or single slots."""
        return self.block_size if self.allocator.paged else 1

    @model_validator(mode="before")
    @classmethod
    def _no_cache_by_default(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "prefix_cache" in data:
            return data
        kind = data.get("allocator", "paged")
        kind = kind.get("kind") if isinstance(kind, Mapping) else getattr(kind, "kind", kind)
        return {**data, "prefix_cache": {"enabled": False}} if kind in ("static", "growth", "buddy") else data

    @model_validator(mode="after")
    def _buffers_share_nothing(self) -> Self:
        if self.prefix_cache.enabled and not self.allocator.paged:
            raise InputError(f"a {self.allocator.kind} allocator shares no prefixes; set prefix_cache: "
                             "{enabled: false}", field="prefix_cache", got="enabled")
        return self


def _warmup(value: Any) -> Any:
    if value == "auto":
        return value
    seconds = parse(value, SECONDS._replace(what="auto or a time"))
    if seconds < 0:
        raise InputError("must be >= 0")
    if seconds > 1e9:
        raise InputError("must be at most 1e9 s, the longest duration")
    return seconds


class Scenario(_Config):
    """One question put to the simulator: a model on hardware, an engine, and the agents it serves."""

    name: str = Field("scenario", min_length=1, max_length=200)
    """What results are called."""
    seed: int = Field(0, ge=0)
    """Root of all random streams."""
    replications: int = Field(1, ge=1, le=10_000)
    """Independent repetitions; intervals come from them."""
    duration: Annotated[Seconds, Field(gt=0, le=1e9)] | None = None
    """Simulated time, at most 1e9 s (some 32 years); when left out, to the end of the trace, or 1 h for a synthetic
    workload."""
    warmup: Annotated[float | Literal["auto"], BeforeValidator(_warmup)] = "auto"
    """Time cut off the start of the results; `auto` finds it (MSER-5)."""
    model: Model
    """Model: a catalogue name, or an inline geometry."""
    weights_dtype: WeightsDtype = "bf16"
    """Precision of the weights."""
    kv_dtype: KvDtype = "bf16"
    """Precision of the KV cache."""
    hardware: Hardware
    """Node: a catalogue name, or an inline profile."""
    nodes: int = Field(1, ge=1, le=10_000)
    """How many of them."""
    parallelism: Parallelism = Parallelism()
    """How one replica is spread over GPUs."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Replicas on each node; when left out, as many as its GPUs allow: gpus // (tp * pp)."""
    timing: Annotated[Timing, BeforeValidator(shorthand.timing)] = Timing()
    """Where step times come from."""
    engine: Engine = Engine()
    """The serving engine that is imitated."""
    tiers: Tiers = Tiers()
    """Places below HBM."""
    retention: Annotated[Retention, BeforeValidator(shorthand.RETENTION.expand)] = Release()
    """What becomes of a context while its trajectory waits for a tool."""
    routing: Annotated[Routing, BeforeValidator(shorthand.ROUTING.expand)] = Sticky()
    """Which replica serves a turn; with any other than the default an agent may leave its context behind."""
    workload: Annotated[WorkloadConfig, AfterValidator(known_agents)]
    """The agents and how they arrive."""
    slo: Slo = Field(default_factory=dict)
    """Latencies that must be met: metric, then statistic, then time. `goodput: {turns: 95 %}` (or `trajectories`) asks
    for a share that meets all the others."""
    sweep: Annotated[dict[str, Any], AfterValidator(check_sweep)] | None = None
    """Points of `kvplan sweep`: dotted paths of this file and the values they take."""
    vary: Annotated[dict[str, list[Any]], AfterValidator(check_vary)] | None = None
    """What `kvplan run` compares side by side: one dotted path of this file and its values, each with the same
    agents."""

    _places: Places | None = PrivateAttr(None)

    @property
    def places(self) -> Places | None:
        """Where each field was written; None for a scenario that was not loaded."""
        return self._places

    def found_at(self, places: Places) -> Self:
        """Note where each field was written."""
        self._places = places
        return self

    def __eq__(self, other: object) -> bool:
        """Return whether the other says the same, wherever it was written."""
        return type(other) is type(self) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _offload_has_a_target(self) -> Self:
        policy = self.retention
        if policy.policy == "offload" and getattr(self.tiers, policy.to) is None:
            raise InputError(f"offloads contexts, so tiers.{policy.to} must be given", field="retention.policy",
                             got=policy.policy)
        return self

    @model_validator(mode="after")
    def _ends_some_day(self) -> Self:
        check_extent(self)
        return self

    @model_validator(mode="after")
    def _leaves_something_to_measure(self) -> Self:
        check_warmup(self)
        return self

    @model_validator(mode="after")
    def _buffers_leave_at_pauses(self) -> Self:
        kind, dram = self.engine.allocator.kind, self.tiers.dram
        if kind != "paged" and dram is not None and dram.write != "on_pause":
            raise InputError(f"a {kind} allocator gives a buffer up whole, so its context is written when it is "
                             "offloaded: on_pause is all there is", field="tiers.dram.write", got=dram.write)
        return self
