"""The verbs ``kvplan calibrate ...``; each says what it takes and hands over."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from sim.errors import InputError
from sim.writing import check_place

app = App(name="calibrate", help="Measure a GPU, fit what was measured, show how far the fit is off.")
imports = App(name="import", help="Profiles from public measurements.")
app.command(imports)

Out = Annotated[Path, Parameter(name=["--output", "-o"])]


@app.command
def bench(*, model: str, tp: int = 1, budget: str = "10min", storage: Path | None = None, device: str | None = None,
          output: Out = Path("samples.jsonl")) -> None:
    """Measure the kernels of a model's shard on this GPU (needs torch); an interrupted run goes on where it stopped.

    Parameters
    ----------
    model
        A model of the catalogue, or a YAML file like its.
    tp
        GPUs a layer is divided over; one GPU's shard is measured.
    budget
        Time to spend, as 90s or 10min; the most valuable points come first.
    storage
        Folder whose storage is measured too.
    device
        cuda or cpu; a GPU if there is one. A CPU measures a few small points, not for planning.
    output
        Samples, JSON lines.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise InputError("torch is not installed; pip install 'kvplan[calibrate]'")
    from calibrate import bench as benchmark

    check_place(output, field="--output", make_parents=True)
    try:
        benchmark.run(model, tp, benchmark.seconds(budget), output, storage=storage, device=device)
    except ValueError as error:
        raise InputError(str(error)) from None


@app.command
def fit(samples: Path, /, *, output: Out, name: str | None = None) -> None:
    """Turn samples of the benchmark into a measured profile.

    Parameters
    ----------
    samples
        What `calibrate bench` wrote.
    output
        The profile, a .json file: in hardware_profiles/measured/GPU/, or anywhere (`timing: {measured: FILE.json}`).
    name
        What it is called; GPU/FILE when left out.
    """
    from calibrate.read_samples import read

    _save(read(samples), output, name)


@app.command
def compare(source: str = "", /, *, backend: str = "vllm", end_to_end: bool = False, plot: Path | None = None,
            jobs: int = 2) -> None:
    """Predicted against measured on points the fit has not seen, worst first.

    Parameters
    ----------
    source
        A samples.jsonl, or a system of an installed aiconfigurator-core (h100_sxm, h200_sxm, b200_sxm, ...); all of
        these three when left out.
    backend
        Serving engine of the wheel's tables.
    end_to_end
        Simulate the wheel's measured servers instead (a minute): TTFT and TPOT.
    plot
        Write a figure there.
    jobs
        Processes for the simulations.
    """
    if end_to_end:
        _compare_servers(jobs)
        return
    from calibrate import blocks
    from calibrate import compare as comparing

    if plot is not None:
        check_place(plot, field="--plot")
    missed = []
    for one in [source] if source else ["h100_sxm", "h200_sxm", "b200_sxm"]:
        frames = comparing.frames_of(one, backend)
        points, rows, misses = comparing.kernels(frames)
        if not len(points):
            raise InputError("holds too few points to hold any out", file=one)
        _show(f"{one}: error on rows not seen ({frames.device})",
              ("kernel", "points", "median", "p90", "bias", "5 % / 15 %", "held out"), rows)
        _show(f"{one}: worst points", ("kernel", "point", "held out", "measured us", "predicted us", "error"),
              comparing.worst(points))
        _show_blocks(one, blocks.fit(blocks.ratios(frames)))
        missed += [f"{one}: {text}" for text in misses]
        if plot is not None:
            comparing.plot(points, plot.with_stem(f"{plot.stem}-{one}") if not source else plot, one)
    print("\n".join(missed) if missed else "every kernel class meets 5 % (median) and 15 % (90th percentile)")


@imports.command
def aiconfigurator(*, system: str, backend: str = "vllm", version: str | None = None,
                   output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None) -> None:
    """From the tables of an installed aiconfigurator-core (pip install 'kvplan[aic]').

    Parameters
    ----------
    system
        a100_sxm, h100_sxm, h200_sxm, b200_sxm or gb200.
    backend
        Serving engine whose kernels were measured.
    version
        Of the backend; the newest when left out.
    output
        Where the profile goes; hardware_profiles/measured/SYSTEM/BACKEND-VERSION.json when left out.
    """
    from calibrate.import_aiconfigurator import read

    frames = read(system, backend, version)
    short = ".".join(str(frames.provenance["backend_version"]).split(".")[:2])
    _save(frames, output, f"{system}/{backend}-{short}", catalogue_only=True, backend=backend)


@imports.command
def vidur(folder: Path, /, *, gpu: str, output: Out) -> None:
    """From a folder of Vidur's CSV files.

    Parameters
    ----------
    folder
        Holds mlp.csv, attention.csv, all_reduce.csv, or some of them.
    gpu
        The catalogue's GPU they were measured on.
    output
        The profile, a .json file.
    """
    from calibrate.import_vidur import read

    _save(read(folder, gpu), output, None)


def _save(frames: Any, output: Path | None, name: str | None, *, catalogue_only: bool = False,
          backend: str | None = None) -> None:
    from calibrate import fit as fitting
    from calibrate import held_out
    from sim.timing.measured_profile import engine_of, folder, write

    if output is not None and output.suffix != ".json":
        raise InputError("must end in .json", field="--output", got=str(output))
    if output is not None:
        check_place(output, field="--output", make_parents=True)
    called = name or f"{frames.gpu}/{output.stem if output else 'measured'}"
    profile = fitting.profile(frames, called, catalogue_only=catalogue_only, engine=engine_of(backend))
    path = output or folder() / f"{called}.json"
    write(profile, path)
    rows = [(kind, str(e["points"]), f"{e['median']:.1%}", f"{e['p90']:.1%}") for kind, e in profile.error.items()]
    _show(f"{called}: error on rows not seen", ("kernel", "points", "median", "p90"), rows)
    fits = [(kind, f"{f['overhead_s'] * 1e6:.3g}", f"{f['flops'] / 1e12:.4g}", f"{f['Bps'] / 1e9:.4g}",
             f"{f['median']:.1%}") for kind, f in profile.fit.items()]
    _show("parametric fit", ("kernel", "overhead us", "TFLOP/s", "GB/s", "median"), fits)
    _show_blocks(called, profile.block_efficiency)
    print("\n".join(held_out.misses(dict(profile.error))), file=sys.stderr)
    if not profile.planning:
        print("measured on a CPU: not for planning", file=sys.stderr)
    print(path)


def _show_blocks(name: str, table: Mapping[str, Any]) -> None:
    """Print what block sizes leave of the rate of decode attention, if several were measured."""
    from calibrate.blocks import rows
    from sim.timing.block_size import REFERENCE

    if table:
        _show(f"{name}: decode attention by block size", ("tokens a block", f"rate, {REFERENCE} tokens = 100 %"),
              rows(table))


def _compare_servers(jobs: int) -> None:
    import tempfile

    from calibrate import compare as comparing
    from calibrate.end_to_end import FIT_ON

    with tempfile.TemporaryDirectory() as folder:
        engine, table = comparing.end_to_end(Path(folder), FIT_ON, jobs)
    rows = int((table["weights"] == "fp8").sum())
    print(f"engine overhead fitted on {engine['fitted_on']} ({engine['rows']} of {rows} rows): "
          f"{engine['layer_s'] * 1e6:.3g} us a layer, {engine['sequence_s'] * 1e6:.3g} us a sequence, "
          f"{engine['ttft_floor_s'] * 1e3:.3g} ms in front of the first token\n")
    _show("simulated against measured servers (vLLM; dense models in fp8)",
          ("rows", "count", "TPOT median", "p90", "bias", "TTFT median", "p90", "bias"), comparing.servers(table))
    _show("worst rows", ("server", "load", "TPOT ms", "simulated", "TTFT ms", "simulated", "odd"),
          comparing.worst_servers(table))


def _show(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.table import Table

    from sim.report.tables import console

    table = Table(*headers, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    out = console()
    out.print(table)
    out.print()
