"""Write the tables of docs/accuracy.md anew: ``python -m calibrate.accuracy docs/accuracy.md`` (two minutes).

What it replaces lies between lines ``<!-- kernels -->`` or ``<!-- servers -->`` and ``<!-- end -->``. It needs an
installed aiconfigurator-core (``pip install 'kvplan[aic]'``).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate import compare, held_out

if TYPE_CHECKING:
    import pandas as pd

#: Columns of the kernels' table: heading, and the system of the wheel.
SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm", "GB200": "gb200", "A100": "a100_sxm"}
#: Its rows: kernel class, what it is called, and what was left out.
KERNELS = {
    "linear": ("matrix products", "token counts between the profile's knots"),
    "decode_attention": ("decode attention", "each inner context, each inner batch; KV beyond the second-level cache"),
    "prefill_attention": ("prefill attention", "each inner length, each inner batch"),
    "all_reduce": ("all-reduce", "each inner message size"),
    "linear, shape unseen": ("products, shape unseen", "every second output width"),
    "latent_decode": ("latent attention, decode module", "as decode attention"),
    "latent_prefill": ("latent attention, prompt module", "each inner length of one prompt"),
}


def kernels(errors: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the kernels' errors, by heading and kernel class; what misses its bound is bold."""
    lines = [f"| median / p90 | {' | '.join(SYSTEMS)} | what was left out |", "|---" * (len(SYSTEMS) + 2) + "|"]
    for name, (called, left_out) in KERNELS.items():
        cells = [_cell(errors[heading].get(name), gated=name in held_out.GATED) for heading in SYSTEMS]
        lines.append(f"| {called} | {' | '.join(cells)} | {left_out} |")
    return "\n".join(lines)


def _cell(error: Mapping[str, float] | None, *, gated: bool) -> str:
    if error is None:
        return "-"
    said = [f"{value:.1%}".replace("%", " %") for value in (error["median"], error["p90"])]
    over = [gated and error["median"] > held_out.MEDIAN, gated and error["p90"] > held_out.P90]
    return " / ".join(f"**{text}**" if missed else text for text, missed in zip(said, over, strict=True))


def servers(table: pd.DataFrame) -> str:
    """Return the table of the servers' errors."""
    lines = ["| rows | count | TPOT median | p90 | bias | TTFT median | p90 | bias |", "|---" * 8 + "|"]
    for name, *cells in compare.servers(table):
        called = f"**{name}**" if name.startswith("not fitted") else name.strip()
        lines.append(f"| {called} | {' | '.join(cells)} |".replace("%", " %"))
    return "\n".join(lines)


def replaced(text: str, name: str, table: str) -> str:
    """Return a page with another table at a place; ValueError if it has no such place."""
    begin, place, rest = text.partition(f"<!-- {name} -->\n")
    _, end, behind = rest.partition("<!-- end -->")
    if not place or not end:
        raise ValueError(f"the page has no place for {name}")
    return f"{begin}{place}{table}\n{end}{behind}"


def main() -> int:
    """Replace the tables of a page."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    from calibrate.end_to_end import FIT_ON

    path = Path(sys.argv[1])
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        engine, table = compare.end_to_end(Path(folder), FIT_ON, jobs=2)
    errors = {heading: held_out.summary(held_out.points(compare.frames_of(system)))
              for heading, system in SYSTEMS.items()}
    path.write_text(replaced(replaced(text, "kernels", kernels(errors)), "servers", servers(table)), encoding="utf-8")
    print({key: value for key, value in engine.items() if key.endswith("_s")})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
