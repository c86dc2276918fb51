"""Measure a GPU: ``python -m calibrate.bench --model llama-3.1-8b --tp 1 --budget 10min -o samples.jsonl``.

Needs torch, numpy and PyYAML, nothing else of this project's dependencies: it runs from a bare checkout on a GPU box.
The most valuable points come first; when the budget is spent it stops, and the same command goes on where it stopped.
Without a GPU it measures a few small points on the CPU, marked as not for planning.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrate.samples import SampleFile, key_of

#: Exit status when a point left the GPU unusable for this process: run the same command again.
BROKEN = 3
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a model of the catalogue, or a YAML file like its")
    parser.add_argument("--tp", type=int, default=1, help="GPUs a layer is divided over; one GPU's shard is measured")
    parser.add_argument("--budget", default="10min", help="time to spend, as 90s or 10min (default)")
    parser.add_argument("--storage", type=Path, help="folder whose storage is measured too")
    parser.add_argument("--device", help="cuda (default where there is one) or cpu")
    parser.add_argument("--flex", action="store_true", help="measure torch's FlexAttention too (slow: compiles a lot)")
    parser.add_argument("--points", type=int, help="stop after so many points")
    parser.add_argument("-o", "--output", type=Path, required=True, help="samples, JSON lines; continued if it exists")
    options = parser.parse_args(arguments)
    try:
        budget_s = seconds(options.budget)
        return run(options.model, options.tp, budget_s, options.output, storage=options.storage, device=options.device,
                   flex=options.flex, most=options.points)
    except ValueError as error:
        print(f"calibrate.bench: {error}", file=sys.stderr)
        return 2


def seconds(text: str) -> float:
    """Return a time such as ``90s`` or ``10min`` in seconds; ValueError if it is none."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*(s|min|m|h|)\s*", text)
    if match is None:
        raise ValueError(f"expected a time such as 10min (got {text!r})")
    return float(match.group(1)) * _SECONDS[match.group(2)]


def run(model: str, tp: int, budget_s: float, output: Path, *, storage: Path | None = None, device: str | None = None,
        flex: bool = False, most: int | None = None) -> int:
    """Measure until the budget is spent or every point is done.

    Parameters
    ----------
    model, tp
        Whose shard is measured; on a CPU a tiny shard stands in.
    budget_s
        Seconds to spend in this call.
    output
        The file of samples; points that are in it already are not measured again.
    storage
        A folder whose storage is measured too.
    device
        ``cuda`` or ``cpu``; None for a GPU if there is one.
    flex
        Measure FlexAttention too.
    most
        Stop after so many points.

    Returns
    -------
    int
        0, or `BROKEN`.

    Raises
    ------
    ValueError
        The model is unknown, or cannot be divided.
    """
    begin = time.monotonic()
    import torch

    from calibrate import measure, plan
    from calibrate.clock import Clock

    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    gpu = where.type == "cuda"
    part = plan.shard(model, tp)
    if not gpu:
        torch.set_num_threads(1)  # threads that wait for each other on a busy box would be all that is measured
    if gpu:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    grid, part = (plan.Grid(), part) if gpu else (plan.TINY, plan.TINY_SHARD)
    bench = measure.Bench(where, Clock(where, most_s=1.0 if gpu else 0.05), storage=storage, flex=flex)
    file = SampleFile(output)
    command = f"calibrate.bench --model {model} --tp {tp}"
    file.write({**measure.provenance(where, command), "model": model, "tp": tp})
    for name, module in _absent(where):
        print(f"not measured: {name}: {module}", file=sys.stderr)
    todo = [(point, name) for point in plan.points(part, grid, storage=storage is not None)
            for name in bench.names(point)]
    left = [(point, name) for point, name in todo if key_of(point, name) not in file.done]
    bar = _Bar(len(todo), len(todo) - len(left))
    count = 0
    for point, name in left:
        if time.monotonic() - begin > budget_s or count == most:
            break
        sample, taken = measure.timed(lambda p=point, n=name: bench.run(p, n))
        broken = sample.pop("broken", False)
        file.write({"key": key_of(point, name), "backend": name, "point": point, **sample,
                    "took_s": round(taken, 3),
                    **(measure.condition(where) if count % 20 == 0 and not broken else {})})
        count += 1
        bar.step(f"{point['kernel']} {name}")
        if broken:
            file.close()
            bar.end(f"{count} measured now; {sample['skipped']}; the same command goes on behind this point")
            return BROKEN
    if count < (most if most is not None else len(left) + 1):
        _collectives(file, where, tp, budget_s - (time.monotonic() - begin), gpu=gpu)
    file.close()
    bar.end(f"{count} measured now, {len(left) - count} left; {output}")
    return 0


def _absent(where: Any) -> Iterator[tuple[str, str]]:
    from calibrate.kernels import load

    for module in load():
        reason = module.missing(where)
        if reason is not None:
            yield f"{module.KERNEL} by {module.NAME}", reason


def _collectives(file: SampleFile, where: Any, tp: int, left_s: float, *, gpu: bool) -> None:
    """Measure all-reduces over the GPUs of this box, if there are several (on a CPU: over two processes)."""
    import torch

    from calibrate.kernels import all_reduce

    sizes = [1 << power for power in (range(10, 29, 2) if gpu else (10, 16))]
    counts = [n for n in (2, 4, 8) if n <= torch.cuda.device_count()] if gpu else [2]
    for gpus in counts:
        points = {size: {"kernel": "all_reduce", "gpus": gpus, "bytes": size} for size in sizes}
        name = all_reduce.NAME[where.type]
        if left_s < 20 or all(key_of(point, name) in file.done for point in points.values()):
            continue
        try:
            found = all_reduce.times(gpus, sizes, where.type)
        except Exception as error:  # whatever a collective library raises must not lose the samples before it
            first = (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
            found = {}
            file.write({"key": key_of(points[sizes[0]], name), "backend": name, "point": points[sizes[0]],
                        "skipped": first})
        for size, raw in found.items():
            middle = sorted(raw)[len(raw) // 2]
            file.write({"key": key_of(points[size], name), "backend": name, "point": points[size], "us": middle * 1e6,
                        "raw_us": [round(s * 1e6, 3) for s in raw], "repeats": len(raw)})


class _Bar:
    """Progress on stderr: a bar on a terminal, else a line a tenth."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.said = max(1, total), done, -1
        self.live = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """One more point is done."""
        self.done += 1
        tenth = 10 * self.done // self.total
        if self.live:
            full = 30 * self.done // self.total
            print(f"\r[{'#' * full}{'.' * (30 - full)}] {self.done}/{self.total} {what:<40.40}", end="",
                  file=sys.stderr, flush=True)
        elif tenth != self.said:
            self.said = tenth
            print(f"{self.done}/{self.total} {what}", file=sys.stderr, flush=True)

    def end(self, what: str) -> None:
        """Say how it ended."""
        print(("\n" if self.live else "") + what, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
