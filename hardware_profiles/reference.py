"""The page that lists the catalogue's figures with their sources, made from the YAML files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from hardware_profiles.catalogue import names, read_yaml

Standing = Literal["yes", "derived", "assumed", "no"]

_ROOT = Path(__file__).parent
_TITLES = {"gpus": "GPUs", "nodes": "Nodes", "links": "Links", "models": "Models"}
_BEGINS: dict[str, Standing] = {"assumed": "assumed", "derived": "derived", "counted": "derived", "not verified": "no"}

HEAD = """\
# Hardware and models

This page is generated (`python -m hardware_profiles.reference docs/hardware.md`); edit the YAML files in
`hardware_profiles/` instead. A scenario may give any figure of its own: `hardware:` and `model:` take a mapping in
place of a name.

The column *verified* says how far a figure can be trusted:

- **yes**: read in the source named, on or before 2026-11-30. Few of these are NVIDIA's own datasheets: most are
  NVIDIA's published configuration files, user guides, benchmark submissions, measurements and pages that quote the
  datasheets. Where the source says "GitHub text search", excerpts were read whose repositories the search did not name.
  Bandwidths and arithmetic of a GPU are peaks.
- **derived**: computed from figures that were read, or carried over from a similar part; the source says how.
- **assumed**: nobody published it, or nobody found it. Check it against your own machine before you lean on it.

**Prices are one vendor's list prices on one day** (on demand, without discount or commitment; the day is in the
source), and vendors differ several-fold. Set your own: `price_usd_per_gpu_hour` in `hardware:`. The price of the GH200
NVL2 is assumed.

Links: `out_Bps` (away from the GPU; a drive's writes) and `in_Bps` (towards it; a drive's reads) are achieved rates of
large pieces, one way at a time, `both_Bps` both ways at once; a contiguous piece of n bytes reaches the share
n / (n + `half_rate_bytes`) of them. `zero_copy` says the same of a copy kernel. `peak_Bps` is for comparison and times
nothing.
"""


def standing(source: str) -> Standing:
    """Say how well a figure is founded, by how its source begins.

    Parameters
    ----------
    source
        Source text of a figure: ``assumed ...``, ``derived: ...``, ``not verified ...``, or where it was read.

    Returns
    -------
    Standing
        ``assumed``, ``derived``, ``no``, and ``yes`` for one that was read somewhere.
    """
    return next((found for begin, found in _BEGINS.items() if source.startswith(begin)), "yes")


def hardware_page() -> str:
    """Return docs/hardware.md."""
    parts = [HEAD]
    for kind, title in _TITLES.items():
        parts.append(f"\n## {title}\n")
        for name in names(kind):
            parts.append(f"\n### {name}\n\n| figure | value | source | verified |\n|---|---|---|---|\n")
            parts += _rows(read_yaml(_ROOT / kind / f"{name}.yaml"))
    return "".join(parts)


def _rows(data: dict[str, Any]) -> Iterator[str]:
    """One row a source: figures that were read in the same place share it."""
    figures: dict[str, list[tuple[str, str]]] = {}
    for field, source in data["sources"].items():
        figures.setdefault(source, []).extend(_values(field, data))
    for source, found in figures.items():
        fields, values = ("<br>".join(column) for column in zip(*found, strict=True))
        yield f"| {fields} | {values} | {source.replace('|', chr(92) + '|')} | {standing(source)} |\n"


def _values(field: str, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    value: Any = data
    for key in field.split("."):
        value = value[key]
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"`{field}.{key}`", f"{inner}"
    else:
        yield f"`{field}`", f"{value:_}" if isinstance(value, int) and value >= 10_000_000 else f"{value}"


if __name__ == "__main__":
    import sys

    Path(sys.argv[1]).write_text(hardware_page(), encoding="utf-8")
