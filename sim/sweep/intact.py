"""Is a file of a run what a run writes? Asked before anything is read from it, so that what is wrong has one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.records import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

#: What is a mapping in every summary; dots lead into it.
_MAPPINGS = (*(f"ttft_s.{which}" for which in ("first", "resumed", "all")), "itl_s", "tpot_s", "turn_s",
             "trajectory_s", "trajectories", "throughput", "hit_rate", "counts", "ledger.turn_s", "ledger.pool_byte_s",
             "ledger.gpu_s", "ledger.tier_byte_s", "ledger.link_s", "allocation", "hold_GB_s.by_tier",
             "hold_GB_s.by_tool", "concurrency", "binds.scores", "cost", "checks.ledger_residual", "intervals")
#: The same of other entries, with what they are.
_OTHERS: tuple[tuple[str, type], ...] = (("turns", int), ("breakers", list))
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999")


def said(error: Exception) -> str:
    """Return what went wrong with a file, on one line."""
    return f"cannot be read: {' '.join(str(error).split())[:160]}"


def check_table(path: Path, columns: Sequence[str] | None = None) -> None:
    """Make sure that a table is there and has the columns that a run's has, or those asked for.

    Raises
    ------
    InputError
        It is missing, damaged, a folder, or another table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir():
        raise InputError("is a folder; expected a Parquet file", file=path)
    try:
        found = pq.read_schema(path)
    except FileNotFoundError:
        raise InputError("missing", file=path) from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(said(error), file=path) from None
    known = {"replication": "int32"} | {name: kind for name, (kind, _) in TABLES.get(path.stem, {}).items()}
    for name in columns if columns is not None else known:
        if name not in found.names:
            raise InputError(f"has no column {name}: not a table of a run, or of another version of kvplan", file=path)
        if name in known and _kind(found.field(name).type) != _kind(pa.type_for_alias(known[name])):
            raise InputError(f"column {name} is of type {found.field(name).type}, expected {known[name]}", file=path)


def _kind(given: pa.DataType) -> str:
    import pyarrow.types as types

    given = given.value_type if types.is_dictionary(given) else given
    kinds = {"number": (types.is_integer, types.is_floating), "truth": (types.is_boolean,),
             "text": (types.is_string, types.is_large_string)}
    return next((kind for kind, tests in kinds.items() if any(test(given) for test in tests)), str(given))


def check_summary(summary: Any, path: Path) -> None:
    """Make sure that a summary has the parts that everything made of it needs.

    Raises
    ------
    InputError
        It lacks one, or has something else in its place.
    """
    for place in _MAPPINGS:
        _part(summary, place, dict, path)
    for place, kind in _OTHERS:
        _part(summary, place, kind, path)
    for place in _MAPPINGS[:7]:
        for name in _STATISTICS:
            if name not in _part(summary, place, dict, path):
                raise InputError(f"has no {place}.{name}", file=path)


def _part(summary: Any, place: str, kind: type, path: Path) -> Any:
    found = summary
    for key in place.split("."):
        if not isinstance(found, Mapping) or key not in found:
            raise InputError(f"not the summary of a run: it has no {place}", file=path)
        found = found[key]
    if not isinstance(found, kind):
        raise InputError(f"not the summary of a run: {place} is no {'mapping' if kind is dict else kind.__name__}",
                         file=path)
    return found


def check_steps(steps: Any, path: Path) -> None:
    """Make sure that histograms have their columns.

    Raises
    ------
    InputError
        They have not.
    """
    for name in ("itl", "step_time"):
        histogram = steps.get(name) if isinstance(steps, Mapping) else None
        if not isinstance(histogram, Mapping) or not all(isinstance(histogram.get(column), list) for column in
                                                         ("low_s", "high_s", "weight", "seconds")):
            raise InputError(f"not the histograms of a run: {name} is missing or incomplete", file=path)
