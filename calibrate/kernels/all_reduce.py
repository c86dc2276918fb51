"""All-reduce over the GPUs of this box, NCCL (gloo between two processes on a CPU, for tests)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

NAME = {"cuda": "nccl", "cpu": "gloo"}


def times(gpus: int, sizes: Sequence[int], device: str, repeats: int = 20) -> dict[int, list[float]]:
    """Return the seconds of each repeat of an all-reduce of each size in bytes, over `gpus` processes.

    Every rank holds its number plus one; a wrong sum raises.
    """
    from torch.multiprocessing import spawn

    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, args=(gpus, list(sizes), device, repeats, folder), nprocs=gpus, join=True)
        found = json.loads((Path(folder) / "times.json").read_text(encoding="utf-8"))
    return {int(size): list(seconds) for size, seconds in found.items()}


def _rank(rank: int, gpus: int, sizes: Sequence[int], device: str, repeats: int, folder: str) -> None:
    import torch.distributed as distributed

    if device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group(NAME[device], init_method=f"file://{folder}/meet", rank=rank, world_size=gpus)
    found: dict[int, list[float]] = {}
    for size in sizes:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        buffer = torch.full((max(1, size // dtype.itemsize),), float(rank + 1), dtype=dtype, device=device)
        distributed.all_reduce(buffer)
        if float(buffer[0]) != gpus * (gpus + 1) / 2 or float(buffer[-1]) != gpus * (gpus + 1) / 2:
            raise RuntimeError(f"all-reduce of {size} bytes over {gpus} gives {float(buffer[0])}")
        buffer.zero_()
        found[size] = [_once(buffer, distributed, device) for _ in range(repeats + 5)][5:]
    if rank == 0:
        (Path(folder) / "times.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.destroy_process_group()


def _once(buffer: torch.Tensor, distributed: object, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    distributed.all_reduce(buffer)  # type: ignore[attr-defined]
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin
