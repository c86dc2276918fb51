"""How far a run is, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.sweep.run import Progress

#: Work shorter than this shows nothing.
DELAY_S = 2.0


@contextmanager
def bar(name: str) -> Iterator[Progress | None]:
    """Give a callback for `sim.run` that draws on a terminal's stderr; None when stderr is something else."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=1.0, desc=name, delay=DELAY_S, leave=False, file=sys.stderr) as drawn:

        def progress(done_s: float, ended: int, whole_s: float | None) -> None:
            drawn.bar_format = "{desc}: {elapsed}, {postfix}" if whole_s is None else (
                "{desc}: {percentage:3.0f}% |{bar}| {elapsed}<{remaining}, {postfix}")
            drawn.set_postfix_str(f"{done_s / 60:,.1f} min simulated, {ended:,} trajectories ended", refresh=False)
            drawn.update(done_s / whole_s - drawn.n if whole_s else 0.0)

        yield progress
