"""Run a scenario: build the workload, simulate each replication, measure, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.metrics import percentiles
from sim.metrics.collect import Columns, Tables
from sim.metrics.measure import Facts, Part, measure
from sim.metrics.summary import summarise
from sim.records import BUCKET_BASE, TIERS, RunTotals
from sim.sweep import store
from sim.sweep.provenance import KEY, provenance
from sim.sweep.result import Result

if TYPE_CHECKING:
    from sim.scenario.deployment import Deployment
    from sim.scenario.model import Scenario

#: Called with the simulated seconds done over all replications, the trajectories ended, and the simulated seconds
#: there are in all (None for a trace played to its end).
Progress = Callable[[float, int, float | None], None]


def load(source: Any, overrides: Sequence[str] = ()) -> Scenario:
    """Load a scenario from a file, YAML text or a mapping; or from the folder (or `run.yaml`) of an earlier run.

    Parameters
    ----------
    source
        Path, YAML text, or a mapping.
    overrides
        ``dotted.path=value`` texts, applied before validation.

    Raises
    ------
    InputError
        The scenario is wrong; the text says where.
    """
    from sim import scenario

    text = _of_a_run(source)
    if text is None:
        return scenario.load(source, list(overrides))
    text = text.partition(f"\n{KEY}:")[0] + "\n"
    try:
        return scenario.load(text, list(overrides))
    except InputError as error:
        if overrides:
            raise
        raise InputError(f"not the scenario of a run: {str(error).splitlines()[0]}", file=_run_file(source)) from None


def check(scenario: Scenario, base_dir: str | Path = ".") -> Scenario:
    """Return the scenario, once it is sure that it fits its hardware and that its workload can be read.

    Raises
    ------
    InputError
        It does not, or cannot.
    """
    import workloads
    from sim.scenario.deployment import deploy
    from sim.scenario.located import located
    from sim.timing import build

    with located(scenario):
        build(scenario.timing, deploy(scenario))
        workloads.build(scenario.workload, Path(base_dir))
    return scenario


def _run_file(source: Any) -> Path:
    path = Path(source)
    return path / "run.yaml" if path.is_dir() else path


def _of_a_run(source: Any) -> str | None:
    """Return the text of `run.yaml` when `source` is an earlier run."""
    if not isinstance(source, Path) and not (isinstance(source, str) and "\n" not in source):
        return None
    path = _run_file(source)
    if path.name != "run.yaml" or not (path.is_file() or (path.parent / "summary.json").is_file()):
        return None
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("missing", file=path) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None


def run(scenario: Any, out: str | Path | None = None, *, seed: int | None = None, replications: int | None = None,
        overrides: Sequence[str] = (), base_dir: str | Path | None = None, force: bool = False,
        progress: Progress | None = None) -> Result:
    """Run a scenario and return its result.

    Parameters
    ----------
    scenario
        A loaded `Scenario`, or what `sim.load` takes.
    out
        Folder for the run's files; without it the result stays in memory.
    seed, replications
        In place of the scenario's.
    overrides
        ``dotted.path=value`` texts (only when `scenario` is not loaded yet).
    base_dir
        Where a relative path in a `Scenario` built by hand starts (loading makes paths absolute); by default the
        current folder.
    force
        Replace an earlier run in `out`.
    progress
        Called now and then, see `Progress`.

    Raises
    ------
    InputError
        The scenario is wrong, the model does not fit, or `out` is taken.
    OutputError
        Files could not be written.
    """
    base = Path(base_dir) if base_dir is not None else Path()
    ready = scenario if _loaded(scenario) else load(scenario, overrides)
    changes = {name: value for name, value in (("seed", seed), ("replications", replications)) if value is not None}
    for name, value in changes.items():
        if value < (name == "replications"):
            raise InputError("too small", field=name, got=value)
    if changes:
        ready = ready.model_copy(update=changes)
    if out is None:
        return _run(ready, base, Tables(), progress)
    folder = Path(out)
    with store.writing(folder, force=force) as partial, ExitStack() as stack:
        tables = Tables(partial)
        stack.callback(tables.abandon)
        result = _run(ready, base, tables, progress)
        result.write(partial)
    tables.moved(folder)
    result.folder = folder
    return result


def _loaded(scenario: Any) -> bool:
    return hasattr(scenario, "workload")


def run_one(scenario: Scenario, replication: int, out: Path | None = None) -> Result:
    """Run one replication of a scenario; its numbers are those it would have within a run of all of them.

    Parameters
    ----------
    scenario
        A loaded scenario.
    replication
        Which one, from 0: with the scenario's seed it keys all randomness.
    out
        Folder for the run's files; an unfinished one's are replaced.

    Raises
    ------
    InputError, OutputError
        See `run`.
    """
    if out is None:
        return _run(scenario, Path(), Tables(), None, replication)
    with store.writing(out, force=True) as partial, ExitStack() as stack:
        tables = Tables(partial)
        stack.callback(tables.abandon)
        result = _run(scenario, Path(), tables, None, replication)
        result.write(partial)
    tables.moved(out)
    result.folder = out
    return result


def _run(scenario: Scenario, base: Path, tables: Tables, progress: Progress | None,
         only: int | None = None) -> Result:
    from sim.scenario.located import located

    with located(scenario):
        return _simulated(scenario, base, tables, progress, only)


def _simulated(scenario: Scenario, base: Path, tables: Tables, progress: Progress | None, only: int | None) -> Result:
    from sim.engine.simulation import run_length_s, simulate
    from sim.scenario.deployment import deploy
    from workloads import build

    deployment = deploy(scenario)
    workload = build(scenario.workload, base)
    facts = facts_of(scenario, deployment, closed=getattr(workload, "closed", None) is not None)
    begun = time.perf_counter()
    totals: list[RunTotals] = []
    length_s = run_length_s(scenario)
    numbers = range(scenario.replications) if only is None else [only]
    for number in numbers:
        tables.begin(number)
        tell = None if progress is None else _telling(progress, totals, length_s, scenario.replications)
        totals.append(simulate(scenario, workload, tables, replication=number, progress=tell))
        _note_skipped(workload, totals[-1])
        for row in totals[-1].spaces:
            tables.space(row)
        totals[-1].spaces.clear()
    wall_s = time.perf_counter() - begun
    tables.close()
    parts = [measure(Columns(tables, number), total, facts) for number, total in zip(numbers, totals, strict=True)]
    text = run_yaml(scenario, provenance(scenario, deployment, base))
    return Result(scenario=scenario, summary=store.plain(summarise(parts, facts, wall_s)), steps=steps_of(parts),
                  run_yaml=text, tables=tables)


def _telling(progress: Progress, before: Sequence[RunTotals], length_s: float | None,
             replications: int) -> Callable[[float, int], None]:
    """Return what one replication reports to, on top of those before it."""
    begun = sum(total.end_s for total in before)
    whole = None if length_s is None else length_s * replications
    return lambda now_s, ended: progress(begun + now_s, ended, whole)


def _note_skipped(workload: Any, total: RunTotals) -> None:
    """Count what the reader of a trace skipped (`on_error: skip`)."""
    problems = getattr(workload, "problems", None)
    if problems is not None and problems.skipped:
        total.counts["trace_errors_skipped"] = problems.skipped


def facts_of(scenario: Scenario, deployment: Deployment, *, closed: bool = False) -> Facts:
    """Return what the summary needs to know of the scenario, and whether its load is `closed`."""
    from sim.scenario.tier_use import if_empty
    from sim.timing import attention_efficiency, block_tokens

    trace = getattr(scenario.workload.agents, "trace", None)
    return Facts(
        warmup_s=None if scenario.warmup == "auto" else float(scenario.warmup),
        finite=trace is not None and scenario.duration is None,
        slo={str(name): {str(stat): float(most) for stat, most in limits.items()}
             for name, limits in scenario.slo.items()},
        gpus=deployment.gpus,
        price_usd_per_gpu_hour=deployment.price_usd_per_gpu_hour or None,
        tiers=tuple(name for name in TIERS if getattr(scenario.tiers, name, None) is not None),
        keeps=tuple(name for name in TIERS if not getattr(getattr(scenario.tiers, name), "exclusive", True)),
        if_empty=if_empty(scenario),
        closed=closed,
        seed=scenario.seed,
        block_tokens=block_tokens(deployment),
        attention_efficiency=attention_efficiency(scenario.timing, deployment),
        copy_efficiency=deployment.copy_efficiency,
        over_hbm_bytes=deployment.over_hbm_bytes,
    )


def steps_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return what `steps.json` holds: histograms after the warm-up, and what bound the steps of whole runs."""
    bound: dict[str, float] = {}
    for part in parts:
        for term, seconds in part.totals.bound_s.items():
            bound[term] = bound.get(term, 0.0) + seconds
    return {
        "bucket_base": BUCKET_BASE, "steps": sum(part.totals.steps for part in parts), "bound_s": bound,
        "step_time": percentiles.columns(percentiles.merge(part.step for part in parts)),
        "itl": percentiles.columns(percentiles.merge(part.itl for part in parts)),
    }


def run_yaml(scenario: Scenario, origin: dict[str, Any]) -> str:
    """Return the text of `run.yaml`: the resolved scenario, then provenance."""
    import yaml

    from sim import scenario as scenarios

    return scenarios.dump(scenario).rstrip("\n") + "\n" + yaml.safe_dump({KEY: origin}, sort_keys=False, width=110)
