"""Measure one point with one backend: build it, check it against its reference, time it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from calibrate.clock import Clock
from calibrate.kernels import copy_blocks, hbm_copy, linear, load, paged, swap
from calibrate.kernels.check import agree

Point = dict[str, Any]


@dataclass(slots=True)
class Bench:
    """What measuring needs.

    Attributes
    ----------
    device, clock
        Where, and how long.
    backends
        Backend modules by kernel; by default all that are installed, FlexAttention only with `flex`: it is compiled
        anew for every point, some ten seconds each.
    storage
        Folder for the storage points, None without.
    """

    device: torch.device
    clock: Clock
    backends: dict[str, list[ModuleType]] = field(default_factory=dict)
    storage: Path | None = None
    flex: bool = False

    def __post_init__(self) -> None:
        if not self.backends:
            for module in load():
                if module.missing(self.device) is None and (self.flex or module.NAME != "torch-flex"):
                    self.backends.setdefault(module.KERNEL, []).append(module)

    def names(self, point: Point) -> list[str]:
        """Return the backends that can measure a point."""
        if point["kernel"] == "storage":
            return ["os"]
        if point["kernel"] == "swap_while_decoding":
            return ["staged"]
        return [module.NAME for module in self.backends.get(point["kernel"], [])]

    def run(self, point: Point, backend: str) -> dict[str, Any]:
        """Return the sample of a point: times, or ``skipped`` or ``refused`` with the reason.

        Out of memory and shapes a backend does not take skip the point; a wrong output refuses it. Neither ends the
        benchmark. After an error that leaves the GPU unusable for this process the sample has ``broken``.
        """
        from calibrate.kernels.check import WrongKernelError

        try:
            return self._run(point, backend)
        except WrongKernelError as error:
            return {"refused": str(error)}
        except torch.OutOfMemoryError:
            return {"skipped": "out of memory"}
        except MemoryError:
            return {"skipped": "out of host memory"}
        except Exception as error:  # whatever a library raises (Triton's errors are of no common kind) skips the point
            first = (str(error).strip().splitlines() or [""])[0]
            short = "out of memory" in first.lower() or "can't allocate" in first.lower()
            found = {"skipped": "out of memory" if short else f"{type(error).__name__}: {first[:200]}"}
            return {**found, "broken": True} if "CUDA error" in first and not short else found
        finally:
            if self.device.type == "cuda":
                with suppress(RuntimeError):
                    torch.cuda.empty_cache()

    def _run(self, point: Point, backend: str) -> dict[str, Any]:
        kernel = point["kernel"]
        if kernel == "storage":
            return self._storage(point)
        if kernel == "swap_while_decoding":
            return self._interference(point)
        module = {module.NAME: module for module in self.backends[kernel]}[backend]
        if kernel == "swap" and point["both_ways"]:
            return self._both_ways(point, module)
        problem = MAKE[kernel](point, self.device)
        expected = REFERENCE[kernel](problem)
        run = module.prepare(problem)
        error = agree(RESULT.get(kernel, _as_is)(problem, self._wait(run())), expected, point.get("dtype")
                      or point.get("kv_dtype") or "fp32")
        del expected
        return {**self.clock.measure(run), "error": error, "version": module.version()}

    def _wait(self, output: Any) -> Any:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return output

    def _storage(self, point: Point) -> dict[str, Any]:
        from calibrate.kernels.storage import seconds

        if self.storage is None:
            return {"skipped": "no --storage folder"}
        found, how = [], ""
        for repeat in range(3):
            taken, how = seconds(self.storage, point["piece_bytes"], point["pieces"], point["depth"],
                                 write=point["write"], seed=repeat)
            found.append(taken * 1e6)
        return {"us": sorted(found)[1], "raw_us": found, "repeats": 3, "how": how}

    def _both_ways(self, point: Point, module: ModuleType) -> dict[str, Any]:
        """Time one direction while the other is busy with large copies, each on a stream of its own.

        (Were the other direction's copies small too, the host could not write them as fast as they are done.)
        """
        if self.device.type != "cuda":
            return {"skipped": "both directions at once need a GPU's streams"}
        other = {"direction": "in" if point["direction"] == "out" else "out", "piece_bytes": _BUSY_PIECE,
                 "pieces": _BUSY_PIECES}
        staged = {module.NAME: module for module in self.backends["swap"]}["staged"]
        return self._beside(module.prepare(swap.make(point, self.device)),
                            staged.prepare(swap.make(other, self.device)), module.version())

    def _interference(self, point: Point) -> dict[str, Any]:
        """Time decode attention while blocks are swapped, and swapping while decode attention runs."""
        if self.device.type != "cuda":
            return {"skipped": "copies beside kernels need a GPU's streams"}
        decoders = self.backends["decode_attention"]
        decode = decoders[0].prepare(paged.make(point, self.device))
        mover = {module.NAME: module for module in self.backends["swap"]}["staged"]
        move = mover.prepare(swap.make({**point, "kernel": "swap"}, self.device))
        decode_alone, move_alone = self.clock.measure(decode, most=50)["us"], self.clock.measure(move, most=50)["us"]
        beside_decode = self._beside(move, decode, mover.version())["us"]
        beside_move = self._beside(decode, move, mover.version())["us"]
        return {"us": beside_move, "repeats": 50, "decode_alone_us": decode_alone, "decode_beside_us": beside_move,
                "swap_alone_us": move_alone, "swap_beside_us": beside_decode, "decoder": decoders[0].NAME}

    def _beside(self, run: Callable[[], Any], noise: Callable[[], Any], version: str) -> dict[str, Any]:
        """Time a kernel on one stream while another keeps a second stream busy from before its start to its end."""
        stream = torch.cuda.Stream()
        alone = self.clock.measure(run, most=10)["us"]
        loud = self.clock.measure(noise, most=10)["us"]
        rounds = max(2, int(3 * alone / loud) + 2)
        found = []
        for _ in range(20):
            with torch.cuda.stream(stream):
                for _ in range(rounds):
                    noise()
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            run()
            last.record()
            torch.cuda.synchronize()
            found.append(first.elapsed_time(last) * 1e3)
        return {"us": sorted(found)[10], "raw_us": found, "repeats": 20, "version": version}


#: What keeps the other direction busy: 128 MiB in one copy.
_BUSY_PIECE, _BUSY_PIECES = 1 << 20, 128


def _as_is(_problem: Any, output: Any) -> Any:
    return output


MAKE: dict[str, Callable[..., Any]] = {
    "decode_attention": paged.make, "prefill_attention": paged.make, "linear": linear.make,
    "copy_blocks": copy_blocks.make, "hbm_copy": hbm_copy.make, "swap": swap.make}
REFERENCE: dict[str, Callable[..., torch.Tensor]] = {
    "decode_attention": paged.reference, "prefill_attention": paged.reference, "linear": linear.reference,
    "copy_blocks": copy_blocks.reference, "hbm_copy": hbm_copy.reference, "swap": swap.reference}
RESULT: dict[str, Callable[..., Any]] = {"copy_blocks": copy_blocks.result, "hbm_copy": hbm_copy.result,
                                            "swap": swap.result}


def provenance(device: torch.device, command: str) -> dict[str, Any]:
    """Return where and with what is measured."""
    import datetime
    import platform

    found: dict[str, Any] = {
        "provenance": 1, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "command": command,
        "torch": torch.__version__, "python": platform.python_version(), "host": platform.machine(),
        "device": "cpu", "planning": False, "note": "device: cpu, not for planning"}
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        found |= {"device": about.name, "planning": True, "note": "", "gpus": torch.cuda.device_count(),
                  "cuda": torch.version.cuda, "l2_bytes": about.L2_cache_size, "hbm_bytes": about.total_memory,
                  "sm": f"{about.major}{about.minor}", "units": about.multi_processor_count, **_driver()}
    return found


def condition(device: torch.device) -> dict[str, Any]:
    """Return clocks and temperature as they are now; nothing where nobody tells."""
    return {} if device.type != "cuda" else _driver("clocks.sm,clocks.mem,temperature.gpu,power.draw")


def _driver(query: str = "driver_version,clocks.max.sm") -> dict[str, Any]:
    import subprocess

    try:
        text = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(query.split(","), (part.strip() for part in text.strip().split(",")), strict=False))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns and the wall-clock seconds it took."""
    begin = time.perf_counter()
    return run(), time.perf_counter() - begin
