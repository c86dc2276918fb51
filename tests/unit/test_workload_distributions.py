"""Do distributions draw what they say, and read what a user writes?"""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads.distributions import CountDistribution, TokenDistribution, WaitDistribution

COUNT, TOKENS, WAIT = TypeAdapter(CountDistribution), TypeAdapter(TokenDistribution), TypeAdapter(WaitDistribution)

EACH = [
    3, {"uniform": {"low": 1, "high": 2}}, {"lognormal": {"median": 9, "p90": 68, "max": 600}},
    {"lognormal": {"median": 9, "sigma": 0.5}}, {"lognormal": {"mean": 9, "cv": 2}}, {"gamma": {"mean": 3, "cv": 2}},
    {"gamma": {"mean": 3, "cv": 0.5, "min": 2}}, {"exponential": {"mean": 2, "max": 3}},
    {"weibull": {"scale": 3, "shape": 0.7}}, {"pareto": {"scale": 1, "alpha": 2.5, "max": 100}},
    {"zipf": {"exponent": 1.1, "n": 20}}, {"quantiles": {"p0": 1, "p50": 45, "p95": 232, "p100": 514}},
    {"quantiles": {"points": {"p10": 7, "p50": 45, "p90": 155}, "interpolation": "log"}},
    {"mixture": [{"weight": 0.65, "of": {"lognormal": {"median": 6.9, "sigma": 0.49}}},
                 {"weight": 0.35, "of": {"lognormal": {"median": 33, "sigma": 1.43}}}]},
    {"mixture": {"parts": [{"weight": 1, "of": 2}, {"weight": 3, "of": {"exponential": {"mean": 5}}}], "max": 9}},
]


@pytest.mark.parametrize("written", EACH, ids=str)
def test_sample_agrees_with_mean_quantile_and_cdf(written):
    d = COUNT.validate_python(written)
    drawn = d.sample(np.random.default_rng(1), 200_000)
    assert drawn.shape == (200_000,)
    assert drawn.mean() == pytest.approx(d.mean(), rel=0.03)
    for q in (0.1, 0.5, 0.9):
        x = d.quantile(q)
        assert float(np.mean(drawn < x - 1e-9)) <= q + 0.01
        assert float(np.mean(drawn <= x + 1e-9)) >= q - 0.01
        assert float(d.cdf(x * (1 + 1e-9))) >= q - 1e-6


@pytest.mark.parametrize("written", EACH, ids=str)
def test_what_is_written_out_reads_back(written):
    d = WAIT.validate_python(written)
    assert WAIT.validate_python(WAIT.dump_python(d)) == d
    assert WAIT.validate_python(json.loads(WAIT.dump_json(d))) == d


def test_units_by_kind():
    assert WAIT.validate_python("2 min").mean() == 120
    assert TOKENS.validate_python({"uniform": {"low": "1k", "high": "3k tokens"}}).mean() == 2000
    with pytest.raises(ValidationError, match="no unit of a time"):
        WAIT.validate_python({"lognormal": {"median": "3 GiB", "sigma": 1}})
    with pytest.raises(ValidationError, match="valid number"):
        WAIT.validate_python({"lognormal": {"median": "3 s", "sigma": "1 s"}})


@pytest.mark.parametrize("written", [
    None, True, [1], {}, {"foo": 1}, {"lognormal": 4}, {"lognormal": {"median": 3}}, {"uniform": {"low": 3, "high": 1}},
    {"lognormal": {"median": 3, "sigma": 1, "cv": 2}}, {"quantiles": {"p0": 3}}, {"quantiles": {"p0": 3, "p50": 2}},
    {"quantiles": {"p0": 3, "p101": 4}}, -4, math.nan, math.inf, {"mixture": []}, {"gamma": {"mean": 0, "cv": 1}},
    {"mixture": [{"weight": 0, "of": 3}]}, {"pareto": {"scale": 1, "alpha": -1}},
    {"exponential": {"mean": 1, "min": 3, "max": 2}},
    {"lognormal": {"median": 3, "p90": 2}}, {"zipf": {"exponent": 1, "n": 0}},
])
def test_nonsense_is_refused(written):
    with pytest.raises(ValidationError):
        COUNT.validate_python(written)


@settings(max_examples=60)
@given(st.floats(0.01, 1e5), st.floats(0, 3), st.floats(0, 1e5), st.floats(0, 1e5))
def test_bounds_clip_everything(median, sigma, a, b):
    low, high = min(a, b), max(a, b)
    d = COUNT.validate_python({"lognormal": {"median": median, "sigma": sigma, "min": low, "max": high}})
    drawn = d.sample(np.random.default_rng(0), 200)
    assert np.all((drawn >= low) & (drawn <= high))
    assert low - 1e-6 <= d.mean() <= high * (1 + 1e-6) + 1e-6
