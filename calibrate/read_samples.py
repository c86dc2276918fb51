"""The benchmark's raw samples as tables, ready to be fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrate.frames import COLUMNS, Frames
from calibrate.samples import lines
from sim.errors import InputError
from sim.timing.block_size import REFERENCE

#: Names the benchmark's GPUs have in the catalogue, by what their driver calls them.
GPUS = {"H100 80GB": "h100-sxm-80gb", "H200": "h200-sxm-141gb", "A100-SXM4-80GB": "a100-sxm-80gb",
        "GH200 120GB": "gh200-96gb", "GH200 144GB": "gh200-144gb", "GB200": "gb200-186gb", "B200": "b200-180gb"}


def read(path: Path) -> Frames:
    """Read a file that `calibrate.bench` wrote.

    Of several backends that measured the same point the quickest counts: it is the one an engine would use.

    Raises
    ------
    InputError
        The file is missing, no such file, or holds samples of different devices.
    """
    import pandas as pd

    if not path.is_file():
        raise InputError("no such file", file=path)
    origin: dict[str, Any] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    backends: dict[str, str] = {}
    left_out = 0
    for number, line in enumerate(_lines(path), 1):
        if "provenance" in line:
            if origin and origin["device"] != line["device"]:
                raise InputError("holds samples of two devices", file=path, line=number, got=line["device"])
            origin = line
            continue
        if "us" not in line:
            left_out += 1
            continue
        point = dict(line["point"])
        kernel = point.pop("kernel")
        if kernel not in COLUMNS:
            continue
        if kernel == "swap":
            point["method"] = line["backend"]
        backends[f"{kernel} by {line['backend']}"] = str(line.get("version", ""))
        for table in _tables(kernel, point):
            rows.setdefault(table, []).append({**{name: point[name] for name in COLUMNS[table]}, "us": line["us"]})
    if not origin:
        raise InputError("has no line of provenance; was it written by calibrate.bench?", file=path)
    tables = {kernel: pd.DataFrame(found).groupby(list(COLUMNS[kernel]), as_index=False)["us"].min()
              for kernel, found in rows.items()}
    device = str(origin["device"])
    gpu = next((name for text, name in GPUS.items() if text in device), device)
    provenance = {"source": "kvplan calibrate bench", **origin, "backends": backends, "left_out": left_out}
    provenance.pop("provenance")
    return Frames(gpu=gpu, device=device, l2_bytes=float(origin.get("l2_bytes", 0.0)), provenance=provenance,
                  planning=bool(origin.get("planning")), tables=tables)


def _tables(kernel: str, point: dict[str, Any]) -> list[str]:
    """Return the tables a point belongs to: decode attention by block size has one of its own."""
    if kernel != "decode_attention":
        return [kernel]
    block = point.setdefault("block", REFERENCE)
    return ["decode_blocks", *(["decode_attention"] if block == REFERENCE else [])]


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return list(lines(path))
    except ValueError as error:
        raise InputError(f"is not JSON lines: {error}", file=path) from None
