"""Quantities with units, which exist only at load: text such as ``80 GiB`` goes in, a plain SI float comes out.

GB is 1e9 bytes and GiB is 2**30, always. Text in bits (``Gb``, ``Gbit``) is refused: it is confused with bytes too
often. Annotate a pydantic field with one of the types below (`Seconds`, `Bytes`, ...) and it accepts a number that is
already in SI, or text with a unit of the right dimension.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, DecimalException
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from sim.errors import InputError, shorten

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40

#: Everything a scenario or a profile may be written in. Small, so that it is built in a millisecond.
_DEFINITIONS = """
micro- = 1e-6 = µ- = u-
milli- = 1e-3 = m-
nano- = 1e-9 = n-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
second = [time] = s = sec
minute = 60 * second = min
hour = 3600 * second = h = hr
day = 86400 * second = d
week = 604800 * second
hertz = 1 / second = Hz
byte = [information] = B
token = [text] = tok
FLOP = [operation] = _ = flop
FLOPS = FLOP / second
USD = [currency] = _ = dollar
trajectory = [] = _ = trajectories = agent = session = request = turn
gpu = [] = GPU
"""

_NUMBER = r"[-+]?(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*(.*?)\s*", re.DOTALL)
_UNIT = re.compile(r"[A-Za-zµμ]+(?: ?[/*] ?[A-Za-zµμ]+| [A-Za-zµμ]+)*")
_BITS = re.compile(r"([kKMGTP]i?)?(b|bits?|bps|bit/s)|(kilo|mega|giga|tera|peta)bits?|[kKMGTP]bits?")


class Kind(NamedTuple):
    """A kind of quantity: what it is called, the unit its plain numbers are in, and how one writes it."""

    what: str
    unit: str
    example: str


SECONDS = Kind("a time", "second", "45 s, 100 ms, 2 h")
BYTES = Kind("a size in bytes", "byte", "80 GiB, 15 TB, 64 KiB")
BYTES_PER_SECOND = Kind("a bandwidth in bytes per second", "byte/second", "54 GB/s, 3.35 TB/s")
RATE = Kind("a rate", "hertz", "0.2/s, 12/min")
TOKENS = Kind("a number of tokens", "token", "8192, 100k tokens")
USD = Kind("an amount of money", "USD", "3 USD")
USD_PER_HOUR = Kind("a price per hour", "USD/hour", "2.5 USD/h")
FLOP = Kind("a number of floating-point operations", "FLOP", "140 GFLOP")
FLOPS = Kind("a compute rate", "FLOP/second", "989 TFLOP/s")
FRACTION = Kind("a fraction", "", "0.92, 92 %")


@lru_cache(maxsize=1)
def _registry() -> Any:
    """Return the unit registry, built at first use (importing pint takes a third of a second)."""
    import pint

    registry: Any = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


@lru_cache(maxsize=256)
def _factor(unit: str, target: str) -> float | None:
    """Return how many `target` one `unit` is, or None if they measure different things; KeyError if unknown."""
    import pint

    registry = _registry()
    try:
        return float(registry.parse_expression(("1" if unit.startswith("/") else "1 ") + unit).m_as(target))
    except pint.DimensionalityError:
        return None
    except (pint.errors.PintError, AttributeError, TypeError) as error:
        raise KeyError(unit) from error


def _normal(unit: str) -> str:
    """Spell a unit the way the registry does: ``k tokens``, ``per``, ``$`` and ``%`` are common ways to write one."""
    unit = re.sub(r"\s+", " ", unit).replace("$", "USD").replace("μ", "µ")
    unit = re.sub(r"\bper\b", "/", unit)
    unit = re.sub(r" ?([/*]) ?", r"\1", unit)
    return re.sub(r"^([kMGT]) (?=[A-Za-z])", r"\1", unit)


def _unknown(unit: str, kind: Kind) -> str:
    """Say why a unit is not understood."""
    hint = {"m": "write min for minutes or ms for milliseconds", "M": "write min for minutes",
            "KB": "write kB (1000) or KiB (1024)"}.get(unit.split("/")[0])
    if hint is None and re.fullmatch(r"[kKMGTP]?i?[bB]ps", unit):
        hint = "write GB/s"
    return f"unknown unit {shorten(unit, 30)!r}; {hint or f'write {kind.what} like {kind.example}'}"


def parse(value: Any, kind: Kind) -> float:
    """Turn a number in SI, or text with a unit, into a plain SI float.

    Parameters
    ----------
    value
        A finite number (taken as it is), or text such as ``80 GiB``.
    kind
        What is expected: one of the constants above (`SECONDS`, `BYTES`, ...).

    Raises
    ------
    InputError
        The text is no number with a known unit of the right dimension, the unit is in bits, or the value is a truth
        value, not finite, or of another type. The message does not repeat the value: whoever knows the field adds it.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"expected {kind.what} like {kind.example}")
    if isinstance(value, str):
        return _parse_text(value, kind)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError("expected a finite number")
    return number


def _parse_text(text: str, kind: Kind) -> float:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"expected {kind.what} like {kind.example}")
    unit = _normal(match[2])
    if not unit:
        return _scaled(match[1], 1.0)
    if unit == "%" or (kind is TOKENS and unit in ("k", "M", "Ki", "Mi")):
        if unit == "%" and kind is not FRACTION:
            raise InputError(f"expected {kind.what} like {kind.example}")
        return _scaled(match[1], {"%": 0.01, "k": KB, "M": MB, "Ki": KiB, "Mi": MiB}[unit])
    if len(unit) > 40 or not _UNIT.fullmatch(unit.removeprefix("/")):
        raise InputError(f"expected {kind.what} like {kind.example}")
    if any(_BITS.fullmatch(part) for part in [unit, *re.split(r"[/* ]", unit)]):
        raise InputError(f"{unit!r} is in bits, which are too easily taken for bytes; write bytes, "
                         f"like {kind.example if 'byte' in kind.unit else BYTES.example}")
    try:
        factor = _factor(unit, kind.unit)
    except KeyError:
        raise InputError(_unknown(unit, kind)) from None
    if factor is None:
        raise InputError(f"{unit!r} is no unit of {kind.what}; write it like {kind.example}")
    return _scaled(match[1], factor)


def _scaled(number: str, factor: float) -> float:
    """Return number x factor, rounded once: 45 us is 4.5e-05 and 12/min is 0.2, as one would write them."""
    try:
        exact = Decimal(number)
        result = float(exact * Decimal(repr(factor)) if factor >= 1 else exact / Decimal(repr(1 / factor)))
    except DecimalException:
        result = math.inf
    if not math.isfinite(result):
        raise InputError("expected a finite number")
    return result


def _accepts(kind: Kind) -> tuple[BeforeValidator, WithJsonSchema]:
    in_unit = f" in {kind.unit}" if kind.unit else ""
    described = f"{kind.what}: a number{in_unit}, or text like {kind.example}"
    schema = {"anyOf": [{"type": "number"}, {"type": "string"}], "description": described}
    return BeforeValidator(lambda value: parse(value, kind)), WithJsonSchema(schema, mode="validation")


def _whole(value: float) -> float:
    if value != int(value):
        raise InputError("expected a whole number of tokens")
    return value


Seconds = Annotated[float, *_accepts(SECONDS)]
Bytes = Annotated[float, *_accepts(BYTES)]
BytesPerSecond = Annotated[float, *_accepts(BYTES_PER_SECOND)]
Rate = Annotated[float, *_accepts(RATE)]
Tokens = Annotated[int, BeforeValidator(lambda value: _whole(parse(value, TOKENS))), _accepts(TOKENS)[1]]
UsdPerHour = Annotated[float, *_accepts(USD_PER_HOUR)]
Flops = Annotated[float, *_accepts(FLOPS)]
Fraction = Annotated[float, *_accepts(FRACTION), Field(ge=0, le=1)]
