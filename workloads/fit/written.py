"""A fit as text: the YAML of its spec, headed by how good it is, and the same as rows of a table."""

from __future__ import annotations

from workloads.fit.fitting import Fit
from workloads.fit.quality import Row

HEADERS = ("recorded / drawn", "n", "p50", "", "mean", "", "p95", "", "D", "fit")


def table(fit: Fit) -> list[tuple[str, ...]]:
    """Return the rows of the table whose columns are `HEADERS`."""
    import numpy as np

    rows = []
    for row in fit.rows:
        pairs = [_number(float(value)) for pair in ((np.median(row.recorded), np.median(row.drawn)),
                                              (row.recorded.mean(), row.drawn.mean()),
                                              (np.quantile(row.recorded, 0.95), np.quantile(row.drawn, 0.95)))
                 for value in pair]
        rows.append((row.name, f"{row.recorded.size:,}", *pairs, f"{row.distance:.3f}",
                     row.verdict.upper() if row.verdict == "poor" else row.verdict))
    return rows


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def warning(fit: Fit) -> str:
    """Return one line that names what the fit does not reproduce; "" if there is nothing."""
    return "" if not fit.poor else "POOR FIT, do not size anything by it before you have looked at: " + "; ".join(
        f"{row.name} ({_why(row)})" for row in fit.poor)


def _why(row: Row) -> str:
    return f"D {row.distance:.2f}, mean {row.drawn.mean():,.4g} for {row.recorded.mean():,.4g}"


def text(fit: Fit) -> str:
    """Return the YAML of a fit; `workload: {agents: FILE}` takes it."""
    import yaml

    lines = ["Fitted by `kvplan workload fit`; use it as `workload: {agents: THIS-FILE}`.", ""]
    if fit.poor:
        lines += [warning(fit), ""]
    lines += ["Goodness of fit. D is Kolmogorov's distance between what was recorded and what this spec draws: good up",
              "to 0.05 (or what the sample can tell), poor above 0.12 or with a mean off by more than 25 %.",
              *("".join(f"{cell:>9}" if place else f"{cell:<31}" for place, cell in enumerate(row)).rstrip()
                for row in (HEADERS, *table(fit)))]
    head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return head + yaml.safe_dump(fit.agents, sort_keys=False, width=110, default_flow_style=None)
