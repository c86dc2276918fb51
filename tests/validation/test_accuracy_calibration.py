"""Are the measured profiles as accurate as is said, on points they have not seen?

The wheel behind them is needed to measure that anew (``pip install 'kvplan[aic]'``); what the shipped profiles carry is
checked without it.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from calibrate import accuracy, compare, held_out
from calibrate.held_out import GATED, MEDIAN, P90
from sim.timing.measured_profile import engine_of, names, read

SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm")
wheel = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed")


@pytest.mark.parametrize("kernel", GATED)
@pytest.mark.parametrize("system", SYSTEMS)
def test_shipped_profiles_carry_an_error_within_the_bounds(system, kernel):
    error = read(f"{system}/vllm-0.24").error[kernel]
    assert error["median"] <= MEDIAN
    assert error["p90"] <= P90


@wheel
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_error_is_what_the_wheel_gives(system):
    frames = compare.frames_of(system)
    points, _, misses = compare.kernels(frames)
    assert misses == []
    stored = read(f"{system}/vllm-0.24").error
    for kernel, error in held_out.summary(points).items():
        assert error == stored[kernel]
    sizes = frames.get("all_reduce").groupby("gpus")["bytes"]
    predicted = points[points["kernel"] == "all_reduce"]
    assert len(predicted) == sum(len(each) - 2 for _, each in sizes), "every inner message size is held out once"


def test_the_page_states_what_the_shipped_profiles_carry():
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    profiles = {name.split("/")[0]: name for name in names()}
    errors = {heading: read(profiles[system]).error for heading, system in accuracy.SYSTEMS.items()}
    assert accuracy.kernels(errors) in page
    assert accuracy.replaced(page, "kernels", accuracy.kernels(errors)) == page
    with pytest.raises(ValueError, match="no place for"):
        accuracy.replaced("nothing", "kernels", "")
    tested = engine_of("vllm")["tested"]
    row = next(line for line in page.splitlines() if "not fitted on: the test" in line)
    for name in ("tpot_median", "ttft_median"):
        assert f"| {tested[name]:.1%} |".replace("%", " %") in row


@wheel
@pytest.mark.study
def test_simulated_servers_against_measured_ones(tmp_path):
    from calibrate.end_to_end import FIT_ON

    engine, table = compare.end_to_end(tmp_path, FIT_ON, jobs=2)
    test = compare.tested(table)
    assert len(test) >= 2 / 3 * (table["weights"] == "fp8").sum()
    assert test["tpot_error"].abs().median() <= 0.10
    assert test["ttft_error"].abs().median() <= 0.25
    beyond = table[table["weights"] == "nvfp4"]
    assert set(beyond["model"]) == {"llama-3.1-70b", "kimi-k2"}
    assert beyond.groupby("model")["tpot_error"].agg(lambda error: error.abs().median()).max() <= 0.10
    stored = engine_of("vllm")
    assert engine["layer_s"] == pytest.approx(stored["layer_s"], rel=0.05)
    assert engine["ttft_floor_s"] == pytest.approx(stored["ttft_floor_s"], rel=0.05)
    for name in ("tpot", "ttft"):
        assert test[f"{name}_error"].abs().median() == pytest.approx(stored["tested"][f"{name}_median"], rel=0.05)
