"""One row for one run: a summary laid flat, and the table of a sweep made of such rows."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.metrics.steady import steady
from sim.records import GPU_USES, POOL_USES, TURN_CAUSES
from sim.sweep.store import OutputError, _say

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sim.sweep.points import Plan

STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999")
LATENCIES = {"ttft_first": ("ttft_s", "first"), "ttft_resumed": ("ttft_s", "resumed"), "ttft": ("ttft_s", "all"),
             "itl": ("itl_s",), "tpot": ("tpot_s",), "turn": ("turn_s",), "trajectory": ("trajectory_s",)}
#: Columns that are no floats.
TEXT, TRUTH = ("run", "status", "error", "binds", "binds_why", "steady"), ("stable", "slo_met", "warmup_settled")
WHOLE = ("replication", "turns", "trajectories_started", "trajectories_finished", "trajectories_rejected", "events")

Row = dict[str, Any]


def flatten(summary: Mapping[str, Any]) -> Row:
    """Return the headline figures of a summary as one flat row; units are in the names, None where not applicable."""
    row: Row = {"turns": summary["turns"],
                **{f"trajectories_{name}": count for name, count in summary["trajectories"].items()}}
    for name, place in LATENCIES.items():
        stats: Any = summary
        for key in place:
            stats = stats[key]
        row |= {f"{name}_{stat}_s": stats[stat] for stat in STATISTICS}
    row |= summary["throughput"]
    goodput = summary["goodput"] or {}
    row |= {"goodput_turns": goodput.get("turns"), "goodput_trajectories": goodput.get("trajectories"),
            "slo_met": goodput.get("met")}
    row |= {f"hit_rate_{name}": value for name, value in summary["hit_rate"].items()}
    row |= {f"concurrency_{name}": value for name, value in summary["concurrency"].items()}
    row |= {"usd_per_trajectory": summary["cost"]["usd_per_trajectory"],
            "usd_per_Mtok_output": summary["cost"]["usd_per_Mtok_output"],
            "usd_per_Mtok_total": summary["cost"]["usd_per_Mtok_total"]}
    row |= {"binds": summary["binds"]["resource"], "binds_why": summary["binds"]["why"],
            "steady": steady(summary).word}
    for name, uses in (("turn", TURN_CAUSES), ("pool", POOL_USES), ("gpu", GPU_USES)):
        ledger = summary["ledger"]["pool_byte_s" if name == "pool" else f"{name}_s"]
        whole = sum(ledger.values())
        row |= {f"{name}_share_{use}": ledger[use] / whole if whole > 0 else None for use in uses}
    row |= {f"allocation_{name}": value for name, value in summary["allocation"].items()}
    row |= {"hold_GB_s": summary["hold_GB_s"]["total"],
            **{f"count_{name}": count for name, count in summary["counts"].items()}}
    checks = summary["checks"]
    return row | {name: checks[name] for name in ("stable", "little_residual", "warmup_settled", "warmup_s", "span_s")
                  } | {"events": summary["events"]}


def table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as an Arrow table with the types that columns always have."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    arrays = {}
    for name in names:
        kind = (pa.string() if name in TEXT else pa.bool_() if name in TRUTH
                else pa.int64() if name in WHOLE else pa.float64())
        arrays[name] = pa.array([row.get(name) for row in rows], kind)
    return pa.table(arrays)


def write(path: Path, data: pa.Table) -> None:
    """Write a table so that a file is there whole or not at all.

    Raises
    ------
    OutputError
        The file system refused; what was there before still is.
    """
    import pyarrow.parquet as pq

    partial = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, partial, compression="zstd")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(_say(path, error)) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read(path: Path) -> Row:
    """Return the row a file holds.

    Raises
    ------
    InputError
        The file cannot be read as one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
        row: Row = rows[0]
        if len(rows) != 1 or row["status"] not in ("finished", "failed"):
            raise ValueError("not one row")
        return row
    except (OSError, pa.ArrowException, ValueError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"damaged: remove it and run the sweep again ({reason[:120]})", file=path) from None


def points(plan: Plan, keys: Mapping[tuple[int, int], str], rows: Mapping[str, Row]) -> pa.Table:
    """Return the table of a sweep: point, axes, replication, then the figures of every run there is so far.

    Axes that hold numbers only are numbers, in SI; others are text.
    """
    found = [(point, number) for point in plan.points for number in range(plan.replications)
             if keys[point.number, number] in rows]
    figures = table([rows[keys[point.number, number]] for point, number in found])
    import pyarrow as pa

    columns = {"point": pa.array([point.number for point, _ in found], pa.int64())}
    for path in plan.paths:
        columns[path] = _axis([point.values.get(path) for point, _ in found])
    for name in figures.column_names:
        columns.setdefault(name, figures[name])
    return pa.table(columns)


def _axis(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    given = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in given):
        return pa.array(values, pa.bool_())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        whole = all(isinstance(value, int) or value.is_integer() for value in given) and all(
            abs(value) < 2**53 for value in given)
        return pa.array(values, pa.int64() if whole else pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def frame(data: pa.Table) -> pd.DataFrame:
    """Return a table of a sweep as a DataFrame."""
    made: pd.DataFrame = data.to_pandas()
    return made
