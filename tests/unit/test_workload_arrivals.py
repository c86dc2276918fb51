"""Do trajectories arrive at the rate and with the variability asked for?"""

from itertools import islice

import numpy as np
import pytest
from pydantic import ValidationError

from workloads.arrivals import Arrivals


@pytest.mark.parametrize(("written", "cv"), [
    ({"poisson": {"rate": "0.2/s"}}, 1.0), ({"gamma": {"rate": 0.2, "cv": 2}}, 2.0),
    ({"weibull": {"rate": "12/min", "shape": 1}}, 1.0), ({"diurnal": {"rate": 0.2, "period": "1 h"}}, None),
])
def test_rate_and_variability(written, cv):
    arrivals = Arrivals.model_validate(written)
    times = np.array(list(islice(arrivals.times(np.random.default_rng(3)), 40_000)))
    gaps = np.diff(times)
    assert np.all(gaps >= 0)
    assert 1 / gaps.mean() == pytest.approx(0.2, rel=0.05)
    if cv is not None:
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_diurnal_follows_the_hour():
    arrivals = Arrivals.model_validate({"diurnal": {"rate": 1, "amplitude": 1, "period": 1000}})
    times = np.array(list(islice(arrivals.times(np.random.default_rng(3)), 20_000)))
    phase = times % 1000
    assert np.mean(phase < 500) == pytest.approx(0.5 + 1 / np.pi, abs=0.02)


@pytest.mark.parametrize("written", [
    {}, {"closed": {"concurrency": 1}, "poisson": {"rate": 1}}, {"closed": {"concurrency": 0}},
    {"poisson": {"rate": 0}}, {"poisson": {"rate": "3 GB"}}, {"gamma": {"rate": 1, "cv": 0}},
    {"trace": {"time_scale": 0}}, {"uniform": {"rate": 1}},
])
def test_nonsense_is_refused(written):
    with pytest.raises(ValidationError):
        Arrivals.model_validate(written)


def test_what_is_written_out_reads_back():
    arrivals = Arrivals.model_validate({"closed": {"concurrency": 3, "think": "2 s"}})
    assert arrivals.model_dump() == {"closed": {"concurrency": 3, "think": 2.0, "ramp": 0.0}}
    assert Arrivals.model_validate(arrivals.model_dump()) == arrivals


@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, 0.5), (1, 1)])
def test_a_ramp_rises_to_its_level_and_stays(start, end):
    arrivals = Arrivals.model_validate({"ramp": {"start": start, "end": end, "over": 4000}})
    runs = [np.array(list(islice(arrivals.times(np.random.default_rng(seed)), 12_000))) for seed in range(4)]
    assert all(np.all(np.diff(times) >= 0) for times in runs)

    def rate(low, high):
        return np.mean([np.sum((times >= low) & (times < high)) for times in runs]) / (high - low)

    for low, high in ((0, 1000), (1500, 2500), (3000, 4000), (4000, 6000)):
        expected = start + (end - start) * min(1, (low + high) / 2 / 4000)
        assert rate(low, high) == pytest.approx(expected, rel=0.12)
