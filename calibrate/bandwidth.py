"""Print what share of the copy bandwidth decode attention reached: ``python -m calibrate.bandwidth samples.jsonl``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrate.samples import lines

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def shares(path: Path) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Yield backend, point, bytes a second and the share of the copy's, for every decode sample."""
    samples = [line for line in lines(path) if "us" in line]
    copies = [2 * s["point"]["bytes"] / s["us"] * 1e6 for s in samples if s["point"]["kernel"] == "hbm_copy"]
    copied = max(copies, default=float("nan"))
    for sample in samples:
        point = sample["point"]
        if point["kernel"] == "decode_attention":
            moved = 2 * point["kv_heads"] * point["head_dim"] * _BYTES[point["kv_dtype"]] * point["batch"]
            rate = moved * point["context"] / sample["us"] * 1e6
            yield sample["backend"], point, rate, rate / copied


def main() -> int:
    """Print a line a sample."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for backend, point, rate, share in shares(Path(sys.argv[1])):
        print(f"{backend:<12} batch {point['batch']:>4} x {point['context']:>6}, blocks of {point['block']:>3}: "
              f"{rate / 1e9:8.1f} GB/s, {share:6.1%} of a copy")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
