"""How much load a deployment holds within its objectives, what binds there, and what more of each resource gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.sweep import estimate, pool, relief, search
from sim.sweep.loads import Load, load_of, placed
from sim.sweep.size_result import SizeResult
from sim.sweep.verdict import Verdict, effect, judge

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Loads tried at most for the answer, for a load that surely meets where the answer only may, and for each relief.
BUDGET, SURE_BUDGET, RELIEF_BUDGET = 12, 8, 8
#: Relative width of the answer's interval that ends the search: of rates, and of whole numbers.
TOLERANCE, WHOLE_TOLERANCE = 0.02, 0.005
#: Replications of a load at first (at least), and at most.
FIRST, MOST = 2, 8

#: Called with a line on what has just been found out.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A load that was tried."""

    value: float
    verdict: Verdict
    summaries: list[dict[str, Any]]

    def data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"value": self.value, "verdict": self.verdict.answer, "replications": len(self.summaries),
                "why": self.verdict.why,
                "objectives": [{name: row[name] for name in ("objective", "limit", "mean", "low", "high", "answer")}
                               for row in self.verdict.objectives]}


@dataclass
class Trials:
    """Tries loads, each with as many replications as it takes to be sure, and remembers them."""

    scenario: Scenario
    load: Load
    first: int
    most: int
    jobs: int | None
    tell: Progress
    tried: dict[tuple[str, float], Candidate] = field(default_factory=dict)
    simulations: int = 0

    def of(self, value: float, resource: str = "") -> Candidate:
        """Return the verdict on a load, with one resource relieved or none."""
        if self.load.find == "replicas":
            value = float(placed(self.scenario, int(value)))
        if (resource, value) not in self.tried:
            self.tried[resource, value] = self._try(value, resource)
        return self.tried[resource, value]

    def _try(self, value: float, resource: str) -> Candidate:
        scenario = self.load.at(self.scenario, value)
        if resource:
            scenario = relief.relieve(scenario, resource)
        is_open = self.load.kind != "closed"
        summaries: list[dict[str, Any]] = []
        while True:
            wanted = self.first if not summaries else min(2 * len(summaries), self.most)
            tasks = [(scenario, number) for number in range(len(summaries), wanted)]
            answers = dict(pool.each(_simulate, tasks, self.jobs))
            summaries += [answers[number] for number in sorted(answers)]
            self.simulations += len(tasks)
            verdict = judge(summaries, is_open=is_open)
            if verdict.answer != "unsure" or len(summaries) >= self.most:
                break
        self.tell(f"{value:g} {self.load.unit}{f', more {relief.WORDS[resource]}' if resource else ''}: "
                  f"{verdict.answer}{f' ({verdict.why})' if verdict.why else ''}, {len(summaries)} replications")
        return Candidate(value, verdict, summaries)

    def sure(self, answer: str, resource: str = "") -> list[float]:
        """Return the loads with a verdict, in order."""
        return sorted(value for (name, value), tried in self.tried.items()
                      if name == resource and tried.verdict.answer == answer)


def _simulate(task: tuple[Scenario, int]) -> tuple[int, dict[str, Any]]:
    from sim.sweep.run import run_one

    scenario, number = task
    return number, run_one(scenario, number).summary


def size(scenario: Any, find: str = "concurrency", *, overrides: Sequence[str] = (), reliefs: bool = True,
         jobs: int | None = None, tolerance: float | None = None, most_replications: int = MOST,
         progress: Progress | None = None) -> SizeResult:
    """Find the largest load that meets a scenario's `slo:` (or the fewest replicas).

    Parameters
    ----------
    scenario
        What `sim.load` takes, or a loaded scenario. It needs objectives.
    find
        ``concurrency`` (closed arrivals), ``rate`` (open ones; of a trace's own times, how many times faster it may
        be played) or ``replicas``.
    overrides
        ``dotted.path=value`` texts.
    reliefs
        Search again with 25 % more of each resource.
    jobs
        Replications at once; None for one a core.
    tolerance
        Relative width of the interval that ends the search; by default 2 % of a rate, and for whole numbers
        neighbours, or 0.5 % if that is more.
    most_replications
        Replications of a load too close to call.

    Raises
    ------
    InputError
        There are no objectives, or the arrivals have no such load.

    Notes
    -----
    The k-th replication of every load sees the same agents. A load meets the objectives when the 99 % interval of
    each, over replications, lies within its limit: so the answer's own interval holds about nine times in ten.
    """
    from sim.sweep.run import load as load_scenario

    ready: Scenario = scenario if hasattr(scenario, "workload") else load_scenario(scenario, overrides)
    if not ready.slo:
        raise InputError("size needs objectives to meet, like slo: {ttft_resumed: {p95: 2 s}}", field="slo")
    load = load_of(ready, find)
    ready = ready.model_copy(update={"sweep": None})
    tolerance = tolerance if tolerance is not None else WHOLE_TOLERANCE if load.whole else TOLERANCE
    first = max(FIRST, ready.replications)
    trials = Trials(ready, load, first, max(first, most_replications), jobs, progress or (lambda text: None))
    begin = _guess(ready, load)
    found = _surely(trials, _search(trials, begin, tolerance), tolerance)
    return _result(trials, found, begin, tolerance, reliefs=reliefs)


def _guess(scenario: Scenario, load: Load) -> float:
    asked = estimate.demand(scenario)
    if load.find != "replicas":
        return estimate.guess(scenario, load.find, asked, 0.0)
    one = load.at(scenario, 1)
    if load.kind == "closed":
        arrivals = scenario.workload.arrivals
        alive = arrivals.closed.concurrency if arrivals is not None and arrivals.closed is not None else 16
        return alive / estimate.guess(one, "concurrency", asked, 0.0)
    rate = getattr(getattr(scenario.workload.arrivals, load.kind, None), "rate", None)
    return rate / estimate.guess(one, "rate", asked, 0.0) if rate else float(placed(scenario, 1))


def _search(trials: Trials, begin: float, tolerance: float, resource: str = "", **known: Any) -> search.Found:
    """Search for the largest fine load; for replicas, for the largest number that does not suffice."""
    load = trials.load
    budget = RELIEF_BUDGET if resource else BUDGET
    if load.find == "replicas":
        return search.largest(lambda count: not trials.of(count, resource).verdict.likely, max(begin - 1, 1), least=1.0,
                              most=1e6, whole=True, tolerance=0.0, budget=budget, **({"known_fine": 0.0} | known))
    return search.largest(lambda value: trials.of(value, resource).verdict.likely, begin,
                          least=load.least(trials.scenario), most=1e7, whole=load.whole,
                          tolerance=tolerance, budget=budget, **known)


def _surely(trials: Trials, found: search.Found, tolerance: float) -> search.Found:
    """Go on to less load (for replicas: to more of them) where nothing tried surely meets the objectives."""
    replicas = trials.load.find == "replicas"
    begin = found.bad if replicas else found.fine
    if begin is None or trials.sure("meets"):
        return found
    if replicas:
        more = search.largest(lambda count: trials.of(count).verdict.answer != "meets", begin, known_fine=begin,
                              least=1.0, most=1e6, whole=True, tolerance=0.0, budget=SURE_BUDGET)
    else:
        more = search.largest(lambda value: trials.of(value).verdict.answer == "meets", begin, known_bad=begin,
                              least=trials.load.least(trials.scenario), most=1e7, whole=trials.load.whole,
                              tolerance=tolerance, budget=SURE_BUDGET)
    return search.Found(found.fine, found.bad, (*found.trials, *more.trials))


def _ends(trials: Trials, found: search.Found, resource: str = "") -> tuple[float | None, float | None, float | None]:
    """Return the answer, and the ends of its interval: the last load that surely fits and the first that does not."""
    meets, misses = trials.sure("meets", resource), trials.sure("misses", resource)
    if trials.load.find == "replicas":
        answer = None if found.bad is None else float(placed(trials.scenario, int(found.bad)))
        low = max((value for value in misses if answer is None or value < answer), default=0.0)
        high = min((value for value in meets if answer is None or value >= answer), default=None)
        return answer, low + 1, high
    answer = found.fine
    low_end = max((value for value in meets if answer is not None and value <= answer), default=0.0)
    high_end = min((value for value in misses if answer is None or value > answer), default=None)
    return answer, low_end, high_end


def _result(trials: Trials, found: search.Found, begin: float, tolerance: float, *, reliefs: bool) -> SizeResult:
    load = trials.load
    answer, low, high = _ends(trials, found)
    tried = [trials.tried["", value].data() for value in dict.fromkeys(
        float(placed(trials.scenario, int(value))) if load.find == "replicas" else value for value in found.trials)]
    searched = trials.simulations
    there = None if answer is None else trials.tried["", answer]
    past = found.bad if load.find != "replicas" else found.fine
    beyond = trials.tried.get(("", past)) if past is not None else None
    rows = [_relieved(trials, resource, answer, found, tolerance) for resource in relief.resources(trials.scenario)
            ] if reliefs and answer is not None and beyond is not None else []
    enough = "one replica is enough" if load.find == "replicas" else "no load tried was too much"
    ledger: dict[str, Any] = beyond.summaries[0]["binds"] if beyond else {"resource": None, "why": enough}
    binds = relief.binds(rows, ledger, answer=answer, low=low, high=high)
    return SizeResult(
        find=load.find, field=load.field, unit=load.unit, answer=answer, low=low, high=high, guess=begin,
        binds=binds.resource, binds_by=binds.by, why=binds.why,
        missed_beyond="" if beyond is None else beyond.verdict.why, reliefs=rows, candidates=tried,
        simulations=searched, simulations_in_all=trials.simulations, seed=trials.scenario.seed,
        objectives=[] if there is None else there.data()["objectives"],
        summary=None if there is None else there.summaries[0])


def _relieved(trials: Trials, resource: str, answer: float, found: search.Found, tolerance: float) -> dict[str, Any]:
    """Search again with more of one resource; where nothing changes just beyond the answer, one trial says so."""
    known: dict[str, Any]
    if trials.load.find == "replicas":
        known = {"known_bad": found.bad}
        if found.fine:
            trials.of(found.fine, resource)
        begin = (found.fine or 0.0) + 1 if found.fine else 1.0
    else:
        known = {"known_fine": answer}
        begin = found.bad or answer
    again = _search(trials, begin, tolerance, resource, **known)
    best, low, high = _ends(trials, again, resource)
    best = answer if best is None else best
    if trials.load.find == "replicas":
        gain, clear = answer - best, high is not None and high < answer
    else:
        gain, clear = best - answer, low is not None and low > answer
    effects = _effects(trials, resource, found.fine if trials.load.find == "replicas" else found.bad)
    clear = clear or (gain > 0 and any(row["better"] for row in effects))
    return {"resource": resource, "what": relief.WORDS[resource], "buy": relief.BUY[resource],
            "factor": relief.FACTOR, "answer": best, "low": low or answer, "high": high, "gain": gain,
            "change": gain / answer, "clear": clear, "effects": effects, "trials": len(again.trials)}


def _effects(trials: Trials, resource: str, beyond: float | None) -> list[dict[str, Any]]:
    """Return what a relief does, at the load just beyond the answer, to the objectives that are missed there."""
    if not beyond:
        return []
    base, other = trials.of(beyond), trials.of(beyond, resource)
    missed = [row["objective"] for row in base.verdict.objectives if not row["likely"]]
    found = [effect(base.summaries, other.summaries, name) for name in missed if name != "stable"]
    return [row for row in found if row is not None]
