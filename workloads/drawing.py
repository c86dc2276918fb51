"""One agent as a picture and as text: a trajectory over time, its context, and its waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.writing import whole_file
from workloads.stats import InfiniteCache, in_order
from workloads.trajectory import Trajectory, Turn

#: What a turn is taken to last in a picture: prompt tokens that are new, and output tokens, a second.
PREFILL_PER_S, DECODE_PER_S = 10_000.0, 50.0
_ROWS = 14  # turns listed in a text


@dataclass(frozen=True, slots=True)
class Placed:
    """A turn in time: it waits from `ready_s`, runs from `start_s` to `end_s`, and computes `new` prompt tokens."""

    turn: Turn
    ready_s: float
    start_s: float
    end_s: float
    new: int


def place(trajectory: Trajectory) -> list[Placed]:
    """Return the turns of a trajectory in time, on a machine that is never busy with anything else."""
    cache = InfiniteCache()
    ended: dict[Turn, list[float]] = {}
    placed: list[Placed] = []
    for turn in in_order(trajectory):
        ends = sorted(ended.get(turn, [0.0]))
        need = turn.pending or 1
        ready_s = ends[min(need, len(ends)) - 1]  # a `first` join starts with the first of them
        start_s = ready_s + turn.wait_s
        new = turn.prompt_tokens - cache.match(turn.stream, turn.prompt_tokens)
        cache.add(turn.stream, turn.prompt_tokens + turn.kept_output)
        end_s = start_s + new / PREFILL_PER_S + turn.output_tokens / DECODE_PER_S
        for follower in turn.next:
            ended.setdefault(follower, []).append(end_s)
        placed.append(Placed(turn, ready_s, start_s, end_s, new))
    return placed


def typical(trajectories: Sequence[Trajectory]) -> Trajectory:
    """Return the trajectory whose number of turns is nearest the median (the first of those)."""
    order = sorted(trajectories, key=lambda trajectory: trajectory.turns)
    middle = order[len(order) // 2].turns
    return min(trajectories, key=lambda trajectory: abs(trajectory.turns - middle))


def as_text(trajectory: Trajectory) -> list[tuple[str, ...]]:
    """Return rows (turn, line, starts, prompt, new, output, waited for): all turns, or the first and last few."""
    placed = place(trajectory)
    chosen = placed if len(placed) <= _ROWS else [*placed[: _ROWS - 4], *placed[-4:]]
    rows: list[tuple[str, ...]] = []
    for one in chosen:
        turn = one.turn
        waited = f"{turn.tool or '-'} {clock(turn.wait_s)}" if turn.wait_s else turn.tool or "-"
        rows.append((str(turn.index), str(turn.branch or "main"), clock(one.start_s), f"{turn.prompt_tokens:,}",
                     f"{one.new:,}", f"{turn.output_tokens:,}", waited))
    if len(placed) > _ROWS:
        rows.insert(_ROWS - 4, ("...", f"{len(placed) - _ROWS} more", "", "", "", "", ""))
    return rows


def clock(seconds: float) -> str:
    """Return a time as a person says it."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def draw(name: str, trajectory: Trajectory, waits: dict[str, list[float]], path: Path) -> None:
    """Draw a trajectory (turns and waits over time, context) and the waits of many, and write the picture.

    Raises
    ------
    InputError
        The picture cannot be written.
    """
    figure, axes = canvas(3, 1, (11, 9))
    placed = place(trajectory)
    size, unit = max(((size, unit) for size, unit in ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
                      if placed[-1].end_s > 2 * size), default=(1.0, "s"))
    _timeline(axes[0, 0], placed, size)
    axes[0, 0].set_title(f"{name}: trajectory {trajectory.number}, {trajectory.turns} turns; a turn takes "
                         f"{PREFILL_PER_S:,.0f} new prompt and {DECODE_PER_S:.0f} output tokens/s here", fontsize=10)
    ax = axes[1, 0]
    for branch in sorted({one.turn.branch for one in placed}):
        line = [one for one in placed if one.turn.branch == branch]
        xs = [at / size for one in line for at in (one.start_s, one.end_s)]
        ys = [tokens for one in line for tokens in
              (one.turn.prompt_tokens, one.turn.prompt_tokens + one.turn.output_tokens)]
        ax.plot(xs, ys, linewidth=1.2, marker=".", markersize=3, label="main line" if not branch else None)
    ax.set_ylabel("context, tokens")
    ax.set_ylim(bottom=0)
    for each in (axes[0, 0], ax):
        each.set_xlim(0, placed[-1].end_s / size * 1.01)
        each.set_xlabel(f"time, {unit}")
    _waits(axes[2, 0], waits)
    save(figure, path)


def _timeline(ax: Any, placed: Sequence[Placed], size: float) -> None:
    """Draw a row of bars for each line: turns dark, waits by tool."""
    tools = sorted({one.turn.tool for one in placed if one.turn.wait_s})
    colours = {tool: f"C{index % 10}" for index, tool in enumerate(tools)}
    rows = {branch: -row for row, branch in enumerate(sorted({one.turn.branch for one in placed}))}
    told: set[str] = set()
    for one in placed:
        row, tool = rows[one.turn.branch], one.turn.tool
        if one.turn.wait_s:
            ax.barh(row, one.turn.wait_s / size, left=one.ready_s / size, height=0.35, color=colours[tool], alpha=0.45,
                    label=None if tool in told else f"waits: {tool or 'start'}")
            told.add(tool)
        ax.barh(row, (one.end_s - one.start_s) / size, left=one.start_s / size, height=0.8, color="#22313f",
                label=None if "turn" in told else "model turn")
        told.add("turn")
    ax.set_yticks(list(rows.values()), ["main" if not branch else f"branch {branch}" for branch in rows])
    ax.legend(loc="upper right", fontsize=7, ncols=4)


def _waits(ax: Any, waits: dict[str, list[float]]) -> None:
    """Draw, by tool, the share of waits that are longer than x."""
    import numpy as np

    for tool, values in sorted(waits.items(), key=lambda item: -len(item[1])):
        ordered = np.sort(np.maximum(values, 1e-3))
        ax.plot(ordered, 1 - (np.arange(ordered.size) + 0.5) / ordered.size, linewidth=1.2,
                label=f"{tool or 'start'} ({len(values):,})")
    if waits:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.legend(fontsize=7, loc="lower left")
    ax.set_xlabel("wait, s (all trajectories drawn)")
    ax.set_ylabel("share longer")
    ax.grid(alpha=0.3)


def canvas(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """Return a figure that needs no display, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, path: Path) -> None:
    """Write a figure; InputError if its name has no picture's ending, OSError if the disk is full."""
    try:
        with whole_file(path) as partial:
            figure.savefig(partial, dpi=110)
    except ValueError as error:
        raise InputError(f"is no picture's name: {str(error).splitlines()[0]}", file=path) from None
    except OSError as error:
        raise OSError(f"cannot write to {path}: {error.strerror or error}") from error
