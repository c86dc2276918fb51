"""What `size` turns up or down: trajectories alive, their rate of arrival, or the replicas that serve them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

Find = Literal["concurrency", "rate", "replicas"]
OPEN = ("poisson", "gamma", "weibull", "diurnal")
#: Trajectories that a run should see arrive, at least.
FEWEST = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """A field that a search varies.

    Attributes
    ----------
    find, field, unit
        What is looked for, the scenario's field behind it, and the unit of its values.
    kind
        Which arrivals the scenario has.
    """

    find: Find
    field: str
    unit: str
    kind: str

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.find != "rate"

    def least(self, scenario: Scenario) -> float:
        """Return the least load worth trying: below, hardly a trajectory arrives in the time simulated."""
        if self.whole:
            return 1.0
        from sim.engine.simulation import run_length_s

        length_s = run_length_s(scenario)
        return 1e-9 if self.kind == "trace" or length_s is None else FEWEST / length_s

    def at(self, scenario: Scenario, value: float) -> Scenario:
        """Return the scenario at a load."""
        if self.find == "replicas":
            return _replicated(scenario, int(value))
        from workloads.arrivals import Arrivals, ClosedLoop

        workload, arrivals = scenario.workload, scenario.workload.arrivals
        if self.find == "concurrency":
            loop = arrivals.closed if arrivals is not None else None
            given = loop.model_dump() if loop is not None else {}
            made = Arrivals(closed=ClosedLoop(**{**given, "concurrency": int(value)}))
        else:
            part = getattr(arrivals, self.kind)
            made = Arrivals(**{self.kind: part.model_copy(update={"time_scale": 1.0 / value} if self.kind == "trace"
                                                          else {"rate": value})})
        return scenario.model_copy(update={"workload": workload.model_copy(update={"arrivals": made})})


def load_of(scenario: Scenario, find: str) -> Load:
    """Return what is to be varied.

    Raises
    ------
    InputError
        `find` is none of `Find`, or the scenario's arrivals have no such load.
    """
    if find not in ("concurrency", "rate", "replicas"):
        raise InputError("choose from concurrency, rate, replicas", field="--find", got=find)
    arrivals = scenario.workload.arrivals
    traced = getattr(scenario.workload.agents, "trace", None) is not None
    kind = next((name for name in (*OPEN, "closed", "trace") if arrivals is not None and getattr(arrivals, name)),
                "trace" if traced else "closed")
    if find == "replicas":
        return Load("replicas", "replicas", "replicas", kind)
    if find == "concurrency":
        if kind != "closed":
            raise InputError(f"concurrency is a load of closed arrivals, these are {kind}; use --find rate, or give "
                             "workload.arrivals.closed", field="--find", got=find)
        return Load("concurrency", "workload.arrivals.closed.concurrency", "trajectories alive", kind)
    if kind == "closed" or arrivals is None:
        raise InputError("rate is a load of open arrivals, these are closed; use --find concurrency, or give "
                         "workload.arrivals.poisson", field="--find", got=find)
    if kind == "trace":
        return Load("rate", "workload.arrivals.trace.time_scale", "times the recorded speed", kind)
    return Load("rate", f"workload.arrivals.{kind}.rate", "trajectories/s", kind)


def per_node(scenario: Scenario) -> int:
    """Return the replicas a node has room for."""
    from hardware_profiles import node

    profile = node(scenario.hardware) if isinstance(scenario.hardware, str) else scenario.hardware
    return max(profile.gpus // (scenario.parallelism.tp * scenario.parallelism.pp), 1)


def placed(scenario: Scenario, replicas: int) -> int:
    """Return the replicas there will be when at least so many are asked for: beyond one node, nodes are full."""
    room = per_node(scenario)
    return replicas if replicas <= room else -(-replicas // room) * room


def _replicated(scenario: Scenario, replicas: int) -> Scenario:
    room = per_node(scenario)
    if replicas <= room:
        update: dict[str, Any] = {"nodes": 1, "replicas": replicas}
    else:
        update = {"nodes": -(-replicas // room), "replicas": None}
    return scenario.model_copy(update=update)
