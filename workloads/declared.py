"""What a spec says of its tools' waits: the distribution each is drawn from, for a predictor that may know it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from workloads.bounded import Array, Distribution
from workloads.spec import Tool, TrajectorySpec

_POINTS = 4096  # quantiles a wait is tabulated at
_COARSE = 256  # of each of two waits that are added up


class DeclaredWait:
    """The distribution of the gap that a tool's calls make, in seconds.

    The mean is exact; `quantile` and `cdf` come from a table of 4,096 quantiles (256 x 256 sums where a client's time
    or an approval comes on top of the tool's own), so they are right to about one part in a thousand. Nothing is worked
    out before it is asked for.

    Parameters
    ----------
    calls
        Each kind of call that goes by this name: its share of the calls, the tool, and the client's time on top.
    """

    def __init__(self, calls: Sequence[tuple[float, Tool, Distribution | None]]) -> None:
        total = sum(share for share, _, _ in calls)
        self._calls = [(share / total, tool, client) for share, tool, client in calls]

    def mean(self) -> float:
        """Return the expected wait; infinite if the distribution has none."""
        return self._mean

    def quantile(self, share: float) -> float:
        """Return the wait that so large a share of waits does not exceed."""
        values, reached = self._table
        return values[min(bisect_left(reached, share), len(values) - 1)]

    def cdf(self, seconds: float) -> float:
        """Return the share of waits that do not exceed `seconds`."""
        values, reached = self._table
        index = bisect_right(values, seconds)
        return reached[index - 1] if index else 0.0

    @cached_property
    def _mean(self) -> float:
        return sum(share * (tool.wait.mean() + (client.mean() if client else 0.0)
                            + (tool.approval.probability * tool.approval.wait.mean() if tool.approval else 0.0))
                   for share, tool, client in self._calls)

    @cached_property
    def _table(self) -> tuple[list[float], list[float]]:
        """Waits in rising order, and the share of waits that each and those before it make."""
        values, weights = (np.concatenate(column) for column in zip(
            *(part for call in self._calls for part in _points(*call)), strict=True))
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order])
        return values[order].tolist(), (reached / reached[-1]).tolist()


def declared_waits(kinds: Iterable[tuple[float, TrajectorySpec]]) -> dict[str, DeclaredWait]:
    """Return each tool's waits, those of sub-agents included.

    Parameters
    ----------
    kinds
        Specs with their weights. Where several use the name of a tool differently, its waits are a mixture by the calls
        expected of each.
    """
    calls: dict[str, list[tuple[float, Tool, Distribution | None]]] = {}
    for weight, spec in kinds:
        for calls_made, nested in _with_nested(weight, spec):
            total = sum(tool.weight for tool in nested.tools.values())
            for name, tool in nested.tools.items():
                if tool.weight and calls_made:
                    calls.setdefault(name, []).append((calls_made * tool.weight / total, tool, nested.client))
    return {name: DeclaredWait(made) for name, made in calls.items()}


def _with_nested(trajectories: float, spec: TrajectorySpec) -> Iterator[tuple[float, TrajectorySpec]]:
    """Yield a spec and its sub-agents', each with its calls: one between two turns, none where a turn branches."""
    gaps = _gaps(spec.turns)
    branching = spec.branching
    if branching is None:
        yield trajectories * gaps, spec
        return
    forks = min(gaps, branching.probability * gaps + len(branching.at))
    children = forks * min(branching.children.mean(), 1e4)
    if branching.agent is None:
        yield trajectories * (gaps - forks + children * _gaps(branching.turns)), spec
    else:
        yield trajectories * (gaps - forks), spec
        yield from _with_nested(trajectories * children, branching.agent)


def _gaps(turns: Distribution) -> float:
    return max(0.0, min(turns.mean(), 1e6) - 1.0)


def _points(share: float, tool: Tool, client: Distribution | None) -> Iterator[tuple[Array, Array]]:
    """Yield equally likely waits of a kind of call, and their weights: without an approval, and with one."""
    asked = tool.approval.probability if tool.approval is not None else 0.0
    for likely, parts in ((1.0 - asked, [tool.wait]),
                          (asked, [tool.wait, tool.approval.wait] if tool.approval is not None else [])):
        if likely:
            values = _sum([*parts, *([client] if client is not None else [])])
            yield values, np.full(values.size, share * likely / values.size)


def _sum(parts: Sequence[Distribution]) -> Array:
    """Return equally likely values of the sum of independent draws."""
    if len(parts) == 1:
        return parts[0].quantile(_middles(_POINTS))
    values = parts[0].quantile(_middles(_COARSE))
    for part in parts[1:]:
        both = np.sort((values[:, None] + part.quantile(_middles(_COARSE))[None, :]).ravel())
        values = both.reshape(_COARSE, -1).mean(axis=1) if part is not parts[-1] else both
    return values


def _middles(n: int) -> Array:
    return (np.arange(n) + 0.5) / n
