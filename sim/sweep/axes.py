"""From the `sweep:` section of a scenario to the fields that each point sets."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.errors import InputError
from sim.sweep.filters import quantity

#: A sweep of more points is taken for a mistake.
MOST = 100_000

#: What a point sets: dotted path -> value as written.
Settings = dict[str, Any]


def expand(sweep: Mapping[str, Any]) -> list[Settings]:
    """Return what each point sets, in order: forms that stand together are crossed, the first varying slowest.

    Parameters
    ----------
    sweep
        A section that has the right shape (see `sim.scenario.sweep_axes.check_sweep`).

    Raises
    ------
    InputError
        The points are more than `MOST`, or a range's ends are no numbers in order.
    """
    parts: list[list[Settings]] = []
    for form, axes in sweep.items():
        if form == "grid":
            parts.extend([{path: value} for value in values] for path, values in axes.items())
        elif form == "zip":
            parts.append([dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)])
        elif form == "list":
            parts.append([dict(point) for point in axes])
        elif form == "sample":
            kind, given = next(iter(axes.items()))
            parts.append(sample(kind, int(given["n"]), given["ranges"], int(given.get("seed", 0))))
    count = math.prod(len(part) for part in parts)
    if count > MOST:
        raise InputError(f"makes {count:,} points, more than {MOST:,}", field="sweep")
    return [{path: value for setting in combination for path, value in setting.items()}
            for combination in itertools.product(*parts)]


def sample(kind: str, n: int, ranges: Mapping[str, Any], seed: int = 0) -> list[Settings]:
    """Return `n` points that fill the ranges evenly; the same seed gives the same points.

    Parameters
    ----------
    kind
        ``latin_hypercube`` or ``sobol`` (scrambled; a power of two keeps its balance).
    ranges
        path -> ``[low, high]``, ``{low:, high:, log:, integer:}`` or ``{choice: [values]}``. Ends may have units; two
        whole numbers give whole numbers.
    """
    from scipy.stats import qmc

    sampler: Any = (qmc.Sobol if kind == "sobol" else qmc.LatinHypercube)(len(ranges), rng=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Sobol' of a count that is no power of two is less even
        unit = sampler.random(n)
    places = [_place(path, span) for path, span in ranges.items()]
    return [{path: place(share) for path, place, share in zip(ranges, places, row, strict=True)}
            for row in unit.tolist()]


def _place(path: str, span: Any) -> Any:
    """Return the function from [0, 1) to the values of one range."""
    if isinstance(span, Mapping) and "choice" in span:
        values = span["choice"]
        return lambda share: values[min(int(share * len(values)), len(values) - 1)]
    low, high = (span["low"], span["high"]) if isinstance(span, Mapping) else span
    options = span if isinstance(span, Mapping) else {}
    a, b = _number(path, low), _number(path, high)
    log = bool(options.get("log", False))
    if not a < b or (log and a <= 0):
        raise InputError("the low end must lie below the high end" + (", both above 0" if log else ""),
                         field=f"sweep.sample.{path}", got=span)
    whole = bool(options.get("integer", all(isinstance(end, int) for end in (low, high))))
    if whole:  # every whole number from low to high has the same share of the range
        a, b = (a, b + 1) if not log else (a - 0.5 if a > 1 else a * 0.75, b + 0.5)

    def place(share: float) -> float | int:
        value = a * (b / a) ** share if log else a + (b - a) * share
        if not whole:
            return value
        return min(int(_number(path, high)), max(int(_number(path, low)), round(value) if log else math.floor(value)))

    return place


def _number(path: str, value: Any) -> float:
    number = quantity(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InputError("expected a number, or a number with a unit", field=f"sweep.sample.{path}", got=value)
    return float(number)


def paths(points: Sequence[Settings]) -> list[str]:
    """Return the paths that points set, in order of their appearance."""
    return list(dict.fromkeys(itertools.chain.from_iterable(points)))


def texts(settings: Settings) -> Iterator[str]:
    """Yield settings as ``path=value`` overrides, values in YAML on one line."""
    import json

    for path, value in settings.items():
        yield f"{path}={json.dumps(value, ensure_ascii=False, allow_nan=False)}"
