"""Predicted against measured, worst points first: a profile's tables, and the simulator against measured servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate import held_out
from calibrate.frames import Frames

if TYPE_CHECKING:
    import pandas as pd

#: Points listed as the worst of each kernel class.
WORST = 5
Row = tuple[str, ...]


def frames_of(source: str, backend: str = "vllm") -> Frames:
    """Return the samples behind a name: a file of the benchmark, or a system of the aiconfigurator wheel."""
    if source.endswith(".jsonl"):
        from calibrate.read_samples import read

        return read(Path(source))
    from calibrate.build import of_catalogue
    from calibrate.import_aiconfigurator import read as read_wheel

    return of_catalogue(read_wheel(source.split("/")[0], backend))


def kernels(frames: Frames) -> tuple[pd.DataFrame, list[Row], list[str]]:
    """Return every held-out point, a row of figures a kernel class, and what misses its bound in words."""
    points = held_out.points(frames)
    errors = held_out.summary(points)
    rows = []
    for name, error in errors.items():
        gated = name in held_out.GATED
        fine = error["median"] <= held_out.MEDIAN and error["p90"] <= held_out.P90
        rows.append((name, str(error["points"]), f"{error['median']:.1%}", f"{error['p90']:.1%}",
                     f"{error['bias']:+.1%}", ("meets" if fine else "MISSES") if gated else "-", error["how"]))
    return points, rows, held_out.misses(errors)


def worst(points: pd.DataFrame, count: int = WORST) -> list[Row]:
    """Return the points that are furthest off, for each kernel class."""
    rows = []
    for name in dict.fromkeys(points["kernel"]):
        part = points[points["kernel"] == name]
        part = part.loc[part["error"].abs().sort_values(ascending=False).index[:count]]
        rows += [(name, f"{p.part}: {p.point}", str(p.held_out), f"{p.measured_us:.4g}", f"{p.predicted_us:.4g}",
                  f"{p.error:+.0%}") for p in part.itertuples()]
    return rows


def plot(points: pd.DataFrame, path: Path, title: str) -> None:
    """Draw predicted over measured for every held-out point, a panel a kernel class."""
    from matplotlib.figure import Figure

    names = [name for name in held_out.GATED if (points["kernel"] == name).any()]
    figure = Figure(figsize=(3.4 * len(names), 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        part = points[points["kernel"] == name]
        axes.plot(part["measured_us"], part["predicted_us"] / part["measured_us"], ".", ms=2, alpha=0.3)
        axes.axhspan(0.85, 1.15, color="0.85", zorder=0)
        axes.axhline(1.0, color="0.4", lw=0.8)
        axes.set(xscale="log", yscale="log", ylim=(0.4, 2.5), title=name, xlabel="measured (us)")
    figure.axes[0].set_ylabel("predicted / measured")
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def servers(table: pd.DataFrame) -> list[Row]:
    """Return median errors of TTFT and TPOT: the rows fitted on, the test, each pair of it, and what is beyond it."""
    rows = []
    test = tested(table)
    groups = [("fitted on", table[table["fitted"]]), ("not fitted on: the test", test)]
    groups += [(f"  {model} on {system}", part) for (model, system), part in test.groupby(["model", "system"])]
    groups += [(f"beyond the test: {model} in nvfp4 on {system}", part) for (model, system), part in
               table[table["weights"] != "fp8"].groupby(["model", "system"])]
    for name, part in groups:
        if len(part):
            tpot, ttft = part["tpot_error"], part["ttft_error"]
            rows.append((name, str(len(part)), f"{tpot.abs().median():.1%}", f"{tpot.abs().quantile(0.9):.1%}",
                         f"{tpot.median():+.1%}", f"{ttft.abs().median():.1%}", f"{ttft.abs().quantile(0.9):.1%}",
                         f"{ttft.median():+.1%}"))
    return rows


def tested(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that the bounds are for: fp8, not fitted on."""
    return table[~table["fitted"] & (table["weights"] == "fp8")]


def worst_servers(table: pd.DataFrame, count: int = 4) -> list[Row]:
    """Return the rows of each pair whose TPOT or TTFT is furthest off, and what is odd about them."""
    test = tested(table)
    test = test.assign(size=test[["tpot_error", "ttft_error"]].abs().max(axis=1))
    chosen = test.sort_values("size", ascending=False).groupby(["model", "system"], sort=False).head(count)
    chosen = chosen.sort_values(["model", "system", "size"], ascending=[True, True, False])
    return [(f"{r.model} on {r.system}, tp {r.tp}", f"{r.concurrency} x {r.prompt}+{r.output}",
             f"{r.tpot_s * 1e3:.1f}", f"{r.tpot_mean_s * 1e3:.1f}", f"{r.ttft_s * 1e3:.0f}",
             f"{r.ttft_mean_s * 1e3:.0f}", odd(r)) for r in chosen.itertuples()]


def odd(row: Any) -> str:
    """Return what is odd about a sample, in words; "" for nothing known."""
    said = []
    if row.model in ("llama-3.1-8b", "qwen3-32b"):
        said.append(f"a closed loop would take {row.share_of_peak:.0%} of peak arithmetic, its series up to 100 %")
    if row.ttft_s > 2.0 and row.concurrency >= 32:
        said.append("KV pool is full: TTFT is queueing")
    if row.system == "b200_sxm" and row.ttft_s < 0.3:
        said.append("this series adds 30-100 ms to every TTFT")
    return "; ".join(said)


def end_to_end(folder: Path, pairs: Sequence[tuple[str, str]], jobs: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """Fit the engine's overhead on some pairs, simulate every sample with it, and return both."""
    from calibrate import end_to_end as servers_

    names = [f"{system}/vllm-0.24" for system in servers_.NODES]
    engine = servers_.fitted_engine(pairs, names, folder, jobs)
    chosen = servers_.samples() + servers_.samples("nvfp4")
    table = servers_.simulate_all(chosen, servers_.with_engine(names, engine, folder), jobs)
    return engine, servers_.judged(table, pairs)
