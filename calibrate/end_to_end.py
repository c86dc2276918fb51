"""The simulator against measured servers: the end-to-end samples that the aiconfigurator-core wheel holds.

Each sample is a closed loop of so many requests at once on a server (vLLM), with its mean TTFT and TPOT. TTFT holds
queueing and collisions with other prompts, so each sample is *simulated*: one-turn trajectories with nothing in common,
always as many alive as the sample says, the engine's default step (8,192 tokens), and the measured profile's times.

What the kernels' sum lacks (launches of small kernels, scheduling, sampling) is an overhead a step, a layer and a
sequence; what a server adds in front of the first token is a floor on TTFT. Both are fitted on the pairs of
`FIT_ON` only, and tested on all others: dense models in fp8. Servers in nvfp4, one of them a mixture of experts with
latent attention, show how far the same figures carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate import import_aiconfigurator

if TYPE_CHECKING:
    import pandas as pd

#: Models of the samples that are dense, as the catalogue calls them.
MODELS = {"meta-llama/Llama-3.1-70B": "llama-3.1-70b", "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
          "Qwen/Qwen3-32B": "qwen3-32b"}
#: Models of the samples in nvfp4 (Kimi-K2.5 has the shapes of Kimi-K2).
FOUR_BIT = {"meta-llama/Llama-3.1-70B": "llama-3.1-70b", "moonshotai/Kimi-K2.5": "kimi-k2"}
NODES = {"h100_sxm": "dgx-h100", "h200_sxm": "dgx-h200", "b200_sxm": "dgx-b200"}
#: Pairs (model, system) the engine's overhead is fitted on, under a third of the rows; all others are the test.
FIT_ON = (("llama-3.1-70b", "h200_sxm"),)
#: Dense peak of the format the samples run in, FLOP/s (datasheets), to tell rows that no GPU can have produced.
PEAK_FP8 = {"h100_sxm": 1.979e15, "h200_sxm": 1.979e15, "b200_sxm": 4.5e15}
PARAMETERS = {"llama-3.1-70b": 70.6e9, "llama-3.1-8b": 8.03e9, "qwen3-32b": 32.8e9, "kimi-k2": 31.7e9}
#: The public benchmark behind these rows draws lengths evenly from 80 to 100 % of the nominal ones.
SPREAD = {"llama-3.1-70b": 0.8, "kimi-k2": 0.8}
#: Format of the KV cache by pair, where it is not 16 bits. Not in the samples: taken from which contexts fit. (With 16
#: bits, 64 contexts of 8k + 1k do not fit one H200 beside the 70 GB of weights, and TTFT would be 95 s instead of 40.)
KV_FP8 = {("llama-3.1-70b", "h200_sxm"), ("llama-3.1-70b", "b200_sxm"), ("kimi-k2", "b200_sxm")}
#: Turns each place of the closed loop is simulated for; the benchmarks send ten requests a place.
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured server.

    Attributes
    ----------
    model, system
        The catalogue's model; the wheel's name of the GPU.
    tp, concurrency
        GPUs that serve a request; requests always in flight.
    prompt, output
        Tokens, nominal.
    ttft_s, tpot_s
        As measured.
    weights
        Format of the weights.
    """

    model: str
    system: str
    tp: int
    concurrency: int
    prompt: int
    output: int
    ttft_s: float
    tpot_s: float
    weights: str = "fp8"

    @property
    def pair(self) -> tuple[str, str]:
        """Model and GPU."""
        return self.model, self.system


def samples(weights: str = "fp8") -> list[Sample]:
    """Return the wheel's samples of vLLM, aggregated serving on one replica, in order.

    Parameters
    ----------
    weights
        ``fp8``: dense models, those of the bound; ``nvfp4``: `FOUR_BIT`.

    Raises
    ------
    InputError
        The wheel is not installed.
    """
    import pandas as pd

    table = pd.read_csv(import_aiconfigurator.root() / "silicon_sample.csv")
    models, precision = (MODELS, "fp8") if weights == "fp8" else (FOUR_BIT, "fp4")
    keep = (table["backend"] == "vllm") & (table["precision"] == precision) & (table["mode"] == "agg")
    keep &= table["model_path"].isin(models) & table["system"].isin(NODES) & (table["pp_size"] == 1)
    keep &= (table["moe_ep_size"].fillna(1) <= 1) & (table["attention_dp_size"].fillna(1) <= 1)
    found = []
    for row in table[keep].itertuples():
        asked = re.search(r"silicon_concurrency=(\d+)", str(row.silicon_data_source))
        found.append(Sample(models[row.model_path], row.system, int(row.tp_size),
                            int(asked.group(1)) if asked else int(row.batch_size), int(row.isl), int(row.osl),
                            float(row.silicon_ttft_ms) / 1e3, float(row.silicon_tpot_ms) / 1e3, weights))
    return sorted(found, key=lambda s: (s.model, s.system, s.tp, s.prompt, s.output, s.concurrency, s.ttft_s))


def scenario(sample: Sample, profile: str, seconds: float) -> dict[str, Any]:
    """Return the scenario that imitates a sample for so many simulated seconds."""
    low = SPREAD.get(sample.model, 1.0)

    def length(nominal: int) -> Any:
        return {"uniform": {"low": int(nominal * low), "high": nominal}} if low < 1 else nominal

    return {
        "name": "silicon", "model": sample.model, "weights_dtype": sample.weights,
        "kv_dtype": "fp8" if sample.pair in KV_FP8 else "bf16",
        "hardware": NODES[sample.system], "parallelism": {"tp": sample.tp},
        "replicas": 1,
        "timing": {"measured": profile}, "duration": seconds, "warmup": 0,
        "engine": {"schedule": {"policy": "chunked", "token_budget": 8192, "max_seqs": 1024},
                   "prefix_cache": False},
        "workload": {"agents": {"prompt": [{"name": "prompt", "tokens": length(sample.prompt), "shared": "none"}],
                                "turns": 1, "output": length(sample.output)},
                     "arrivals": {"closed": {"concurrency": sample.concurrency}}},
    }


def simulate(sample: Sample, profile: str) -> dict[str, float]:
    """Return what the simulator says of a sample: medians and means of TTFT and TPOT, in seconds."""
    import sim

    seconds = ROUNDS * (sample.ttft_s + sample.output * sample.tpot_s)
    summary = sim.run(sim.load(scenario(sample, profile, seconds))).summary
    ttft, tpot = summary["ttft_s"]["all"], summary["tpot_s"]
    return {"ttft_p50_s": ttft["p50"], "ttft_mean_s": ttft["mean"], "tpot_p50_s": tpot["p50"],
            "tpot_mean_s": tpot["mean"], "turns": float(summary["turns"])}


def simulate_all(chosen: Sequence[Sample], profiles: Mapping[str, str], jobs: int = 2) -> pd.DataFrame:
    """Return one row a sample: the sample, and what the simulator says."""
    import pandas as pd
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=jobs)(delayed(simulate)(s, profiles[s.system]) for s in chosen)
    fields = list(Sample.__dataclass_fields__)
    table = pd.DataFrame([{**{name: getattr(s, name) for name in fields}, **row}
                          for s, row in zip(chosen, found, strict=True)])
    low = table["model"].map(lambda name: SPREAD.get(name, 1.0))
    tokens = (table["prompt"] + table["output"]) * (1.0 + low) / 2.0
    each = table["ttft_s"] + table["output"] * (1.0 + low) / 2.0 * table["tpot_s"]
    peak = table["tp"] * table["system"].map(PEAK_FP8)
    table["share_of_peak"] = 2.0 * table["model"].map(PARAMETERS) * tokens * table["concurrency"] / each / peak
    return table


def fitted_engine(pairs: Sequence[tuple[str, str]], profiles: Sequence[str], folder: Path,
                  jobs: int = 2) -> dict[str, Any]:
    """Fit what the engine adds to its kernels on the samples of some pairs.

    The misses of TPOT are laid on an overhead a layer and one a sequence by least absolute relative deviations; then
    TTFT is simulated anew and a constant floor added likewise. (With one model the overhead of a layer cannot be told
    from one of a step; launches come with layers.)

    Returns
    -------
    dict
        `Profile.engine`: ``layer_s``, ``sequence_s``, ``ttft_floor_s``, and how they were found.
    """
    chosen = [sample for sample in samples() if sample.pair in pairs]
    bare = simulate_all(chosen, with_engine(profiles, {}, folder), jobs)
    layers = bare["model"].map(layers_of).to_numpy(float)
    miss = (bare["tpot_s"] - bare["tpot_mean_s"]).to_numpy(float)
    layer_s, sequence_s = _absolute(np.stack([layers, bare["concurrency"].to_numpy(float)], 1), miss,
                                    bare["tpot_s"].to_numpy(float))
    engine: dict[str, Any] = {"layer_s": float(f"{layer_s:.4g}"), "sequence_s": float(f"{sequence_s:.4g}")}
    again = simulate_all(chosen, with_engine(profiles, engine, folder), jobs)
    late = (again["ttft_s"] - again["ttft_mean_s"]).to_numpy(float)
    (floor_s,) = _absolute(np.ones((len(late), 1)), late, again["ttft_s"].to_numpy(float))
    where = ", ".join(f"{model} on {system}" for model, system in pairs)
    return {**engine, "ttft_floor_s": float(f"{floor_s:.4g}"), "fitted_on": where, "rows": len(chosen),
            "source": f"silicon_sample of aiconfigurator-core {import_aiconfigurator.wheel_version()} (vLLM, fp8)"}


def _absolute(matrix: Any, target: Any, scale: Any) -> Any:
    """Return non-negative coefficients with the least absolute deviations, each over `scale`."""
    from scipy.optimize import nnls

    rows, aim = matrix / scale[:, None], target / scale
    weights = np.ones_like(aim)
    found = np.zeros(matrix.shape[1])
    for _ in range(30):
        found, _ = nnls(rows * weights[:, None], aim * weights)
        weights = 1.0 / np.sqrt(np.maximum(np.abs(rows @ found - aim), 1e-3))
    return found


def with_engine(names: Sequence[str], engine: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return, by system, the path of a copy of each profile with that engine overhead."""
    return {name.split("/")[0]: profile_with(name, engine, folder) for name in names}


def judged(table: pd.DataFrame, pairs: Sequence[tuple[str, str]] = FIT_ON) -> pd.DataFrame:
    """Add the relative errors of TTFT and TPOT, and whether a row was fitted on, to what `simulate_all` returned.

    TTFT holds the floor of the profile that was simulated.
    """
    keys = list(zip(table["model"], table["system"], strict=True))
    fitted = np.array([key in pairs for key in keys], dtype=bool) & (table["weights"] == "fp8")
    return table.assign(ttft_error=table["ttft_mean_s"] / table["ttft_s"] - 1.0,
                        tpot_error=table["tpot_mean_s"] / table["tpot_s"] - 1.0, fitted=fitted)


def profile_with(name: str, engine: Mapping[str, Any], folder: Path) -> str:
    """Write a copy of a profile with another engine overhead, and return its path."""
    from sim.timing.measured_profile import read, write

    path = folder / f"{name.replace('/', '-')}.json"
    write(replace(read(name), engine=dict(engine)), path)
    return str(path)


def layers_of(model: str) -> int:
    """Return the layers of a model of the catalogue."""
    import hardware_profiles

    return int(hardware_profiles.model(model).n_layers)
