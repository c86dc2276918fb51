"""Do quantities with units become the right SI numbers, and is everything else refused in one clear line?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim import units
from sim.errors import InputError
from sim.units import parse


@pytest.mark.parametrize(("text", "kind", "expected"), [
    ("45 s", units.SECONDS, 45.0),
    ("45 us", units.SECONDS, 4.5e-5),
    ("100ms", units.SECONDS, 0.1),
    ("1.5 hours", units.SECONDS, 5400.0),
    ("2 h", units.SECONDS, 7200.0),
    ("30 mins", units.SECONDS, 1800.0),
    ("1 day", units.SECONDS, 86400.0),
    ("80 GiB", units.BYTES, 80 * 2.0**30),
    ("1 TiB", units.BYTES, 2.0**40),
    ("15 TB", units.BYTES, 15e12),
    ("64 KiB", units.BYTES, 65536.0),
    ("5 gigabytes", units.BYTES, 5e9),
    ("1_000 kB", units.BYTES, 1e6),
    ("54 GB/s", units.BYTES_PER_SECOND, 54e9),
    ("3.35 TB / s", units.BYTES_PER_SECOND, 3.35e12),
    ("0.2/s", units.RATE, 0.2),
    ("12/min", units.RATE, 0.2),
    ("12 per minute", units.RATE, 0.2),
    ("36 agents/h", units.RATE, 0.01),
    ("2 trajectories/s", units.RATE, 2.0),
    ("5 Hz", units.RATE, 5.0),
    ("1k tokens", units.TOKENS, 1000.0),
    ("1 k tokens", units.TOKENS, 1000.0),
    ("100k", units.TOKENS, 100_000.0),
    ("128 Ki", units.TOKENS, 131072.0),
    ("2 Mtok", units.TOKENS, 2e6),
    ("989 TFLOP/s", units.FLOPS, 989e12),
    ("989 TFLOPS", units.FLOPS, 989e12),
    ("140 GFLOP", units.FLOP, 140e9),
    ("3 USD", units.USD, 3.0),
    ("2.5 USD/h", units.USD_PER_HOUR, 2.5),
    ("2.5 $/GPU/h", units.USD_PER_HOUR, 2.5),
    ("92 %", units.FRACTION, 0.92),
    (7, units.SECONDS, 7.0),
    ("7", units.SECONDS, 7.0),
    (" 7 s ", units.SECONDS, 7.0),
])
def test_text_becomes_si(text: object, kind: units.Kind, expected: float) -> None:
    assert parse(text, kind) == expected


@pytest.mark.parametrize(("value", "kind", "says"), [
    ("80 Gb", units.BYTES, "bits"),
    ("80 Gib", units.BYTES, "bits"),
    ("80 Gbit", units.BYTES, "bits"),
    ("8 bits", units.BYTES, "bits"),
    ("400 Gbit/s", units.BYTES_PER_SECOND, "bits"),
    ("400 Gbps", units.BYTES_PER_SECOND, "bits"),
    ("50 GBps", units.BYTES_PER_SECOND, "write GB/s"),
    ("3 GB", units.SECONDS, "no unit of a time"),
    ("3 s", units.BYTES, "no unit of a size"),
    ("3 GB", units.BYTES_PER_SECOND, "no unit of a bandwidth"),
    ("3 s", units.RATE, "no unit of a rate"),
    ("5 m", units.SECONDS, "min for minutes"),
    ("80 KB", units.BYTES, "kB (1000) or KiB (1024)"),
    ("80 gb", units.BYTES, "unknown unit"),
    ("3 parsec", units.SECONDS, "unknown unit"),
    ("3 import", units.SECONDS, "unknown unit"),
    ("3 %", units.SECONDS, "expected a time"),
    ("12:30", units.SECONDS, "expected a time"),
    ("1 h 30 min", units.SECONDS, "expected a time"),
    ("1,000 s", units.SECONDS, "expected a time"),
    ("3 s ** 9", units.SECONDS, "expected a time"),
    ("fast", units.SECONDS, "expected a time"),
    ("$3", units.USD, "expected an amount"),
    ("", units.SECONDS, "expected a time"),
    ("nan", units.SECONDS, "expected a time"),
    ("٣ s", units.SECONDS, "expected a time"),
    ("1e400 s", units.SECONDS, "finite"),
    ("1e99999999999 s", units.SECONDS, "finite"),
    (10**400, units.SECONDS, "finite"),
    (math.nan, units.SECONDS, "finite"),
    (-math.inf, units.BYTES, "finite"),
    (True, units.SECONDS, "expected a time"),
    (None, units.BYTES, "expected a size"),
    ([1], units.TOKENS, "expected a number of tokens"),
])
def test_the_rest_is_refused(value: object, kind: units.Kind, says: str) -> None:
    with pytest.raises(InputError, match=r"\A[^\n]+\Z") as caught:
        parse(value, kind)
    assert says in str(caught.value)


@given(st.text(max_size=30) | st.from_regex(r"[0-9]{1,3} ?[a-zA-Z/*% ]{1,8}", fullmatch=True),
       st.sampled_from([units.SECONDS, units.BYTES, units.RATE, units.TOKENS, units.FRACTION]))
def test_any_text_gives_a_finite_number_or_one_line(text: str, kind: units.Kind) -> None:
    try:
        number = parse(text, kind)
    except InputError as refused:
        number = math.nan if "\n" in str(refused) else 0.0
    assert math.isfinite(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_si_already(value: float) -> None:
    assert parse(value, units.BYTES) == value
    assert parse(f"{value!r} B", units.BYTES) == value


def test_annotated_types_in_a_model() -> None:
    assert TypeAdapter(units.Seconds).validate_python("2 h") == 7200.0
    tokens = TypeAdapter(units.Tokens).validate_python("8k tokens")
    assert tokens == 8000
    assert isinstance(tokens, int)
    with pytest.raises(ValidationError, match="whole number of tokens"):
        TypeAdapter(units.Tokens).validate_python(1.5)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        TypeAdapter(units.Fraction).validate_python("120 %")


def test_schema_tells_how_to_write_a_quantity() -> None:
    schema = TypeAdapter(units.Bytes).json_schema()
    assert schema["anyOf"] == [{"type": "number"}, {"type": "string"}]
    assert "80 GiB" in schema["description"]


def test_constants() -> None:
    assert (units.GB, units.GiB, units.TB, units.TiB) == (10**9, 2**30, 10**12, 2**40)


def test_pint_is_imported_only_when_text_must_be_read() -> None:
    import subprocess
    import sys

    code = "import sys, sim.units as u; u.parse(3, u.BYTES); u.parse('3', u.BYTES); sys.exit('pint' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
