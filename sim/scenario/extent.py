"""How much a scenario asks to simulate, from means: a product that would never end is refused before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim.errors import InputError
from workloads import library
from workloads.arrivals import Arrivals
from workloads.config import Mix, TraceConfig
from workloads.spec import TrajectorySpec

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Turns that one run simulates at most: at some 10,000 a second of wall clock, more than a day.
MOST_TURNS = 1e9
#: Simulated time of a synthetic workload that gives none, s.
DEFAULT_DURATION_S = 3600.0
#: A decode step takes at least so long, s.
_STEP_S = 1e-3


def check_extent(scenario: Scenario) -> None:
    """Make sure that a scenario asks for no more turns than can be simulated.

    In an open stream: mean rate x duration x mean turns of an agent. In a closed loop: concurrency x duration over the
    mean time from a turn to the next, which is its wait and at least a millisecond for each token of its output. A
    recording ends by itself and is not looked at.

    Raises
    ------
    InputError
        It asks for more than `MOST_TURNS`; the text names both fields.
    """
    agents = scenario.workload.agents
    if isinstance(agents, TraceConfig):
        return
    seconds = DEFAULT_DURATION_S if scenario.duration is None else scenario.duration
    arrivals = scenario.workload.arrivals or Arrivals.model_validate({"closed": {"concurrency": 16}})
    kinds = list(_kinds(agents))
    whole = sum(weight for weight, _ in kinds)
    if arrivals.closed is not None:
        name, load = "closed.concurrency", float(arrivals.closed.concurrency)
        each = sum(weight / _cycle_s(spec) for weight, spec in kinds) / whole
    else:
        name, load = _rate(arrivals)
        each = sum(weight * min(spec.turns.mean(), 1e5) for weight, spec in kinds) / whole
    turns = load * seconds * each
    if turns > MOST_TURNS:
        raise InputError(f"with workload.arrivals.{name} {load:g} it asks for some {turns:.0e} turns; at most "
                         f"{MOST_TURNS:.0e} can be simulated", field="duration", got=f"{seconds:g} s")


def check_warmup(scenario: Scenario) -> None:
    """Make sure that something is measured: a warm-up that is given ends before the run does.

    A trace without a `duration` ends by itself, and when is not known yet.

    Raises
    ------
    InputError
        It does not.
    """
    length_s = scenario.duration
    if length_s is None and not isinstance(scenario.workload.agents, TraceConfig):
        length_s = DEFAULT_DURATION_S
    if length_s is not None and scenario.warmup != "auto" and scenario.warmup >= length_s:
        raise InputError(f"must be shorter than the duration, {length_s:g} s, or nothing is left to measure",
                         field="warmup", got=f"{scenario.warmup:g} s")


def _kinds(agents: str | TrajectorySpec | Mix) -> Iterator[tuple[float, TrajectorySpec]]:
    kinds = [(kind.weight, kind.agents) for kind in agents.mix] if isinstance(agents, Mix) else [(1.0, agents)]
    for weight, one in kinds:
        yield weight, library(one) if isinstance(one, str) else one


def _cycle_s(spec: TrajectorySpec) -> float:
    """Return the least mean time between two turns of an agent, s."""
    weights = sum(tool.weight for tool in spec.tools.values())
    wait_s = sum(tool.weight * tool.wait.mean() for tool in spec.tools.values()) / weights
    return wait_s + max(1.0, spec.output.mean()) * _STEP_S


def _rate(arrivals: Arrivals) -> tuple[str, float]:
    """Return the field of an open stream's rate, and its mean, in trajectories a second."""
    if arrivals.ramp is not None:
        return "ramp.end", arrivals.ramp.end
    named = ((name, getattr(arrivals, name)) for name in ("poisson", "gamma", "weibull", "diurnal"))
    return next(((f"{name}.rate", float(kind.rate)) for name, kind in named if kind is not None), ("trace", 0.0))
