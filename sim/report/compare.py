"""Runs side by side, and paired differences to the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.metrics import wording
from sim.sweep import store

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Comparison:
    """Summaries by name, and for each run but the first its paired differences, or why there are none."""

    summaries: dict[str, dict[str, Any]]
    differences: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unpaired: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"summaries": self.summaries, "differences": self.differences, "unpaired": self.unpaired}


def compare(folders: Sequence[Path]) -> Comparison:
    """Read runs and compare each with the first.

    Raises
    ------
    InputError
        A folder does not hold a run.
    """
    for folder in folders:
        if (folder / "row.parquet").is_file() and not (folder / "summary.json").is_file():
            raise InputError("holds only the row of a sweep's run; its tables are kept by kvplan sweep --keep, "
                             "into a new folder", file=folder)
    names = _names(folders)
    found = Comparison({name: store.read_summary(folder) for name, folder in zip(names, folders, strict=True)})
    origin = [_agents(folder) for folder in folders]
    for number in range(1, len(folders)):
        if origin[number] != origin[0]:
            found.unpaired[names[number]] = "its agents differ from the first run's (agents, seed or replications)"
        else:
            found.differences[names[number]] = _paired(folders[0], folders[number], list(found.summaries.values()),
                                                       number)
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    return names if len(set(names)) == len(names) else [f"{n}: {name}" for n, name in enumerate(names)]


def _agents(folder: Path) -> Any:
    """Return what decides the agents of a run: equal for two runs that can be paired."""
    import yaml

    try:
        data = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8"))
        return data["seed"], data["replications"], data["workload"]["agents"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        raise InputError(f"cannot be read as a run: {error}", file=folder / "run.yaml") from None


def _paired(base: Path, other: Path, summaries: Sequence[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    from sim.metrics import paired

    tables = [(store.read_table(folder / "turns.parquet", paired.TURN_COLUMNS),
               store.read_table(folder / "trajectories.parquet", paired.TRAJECTORY_COLUMNS))
              for folder in (base, other)]
    warmup = max(summaries[i]["checks"]["warmup_s"] for i in (0, number))
    return paired.paired(tables[0], tables[1], warmup)


def show(comparison: Comparison, to: Console | None = None) -> None:
    """Print a comparison."""
    from sim.report import tables

    out = to or tables.console()
    runs = list(comparison.summaries.items())
    tables.show_compared("side by side", runs, out)
    for name, rows in comparison.differences.items():
        out.print()
        tables.show_rows(
            [(row["latency"], wording.number(row["pairs"]), wording.seconds(row["base_s"]),
              _signed(row["difference_s"]), _range(row), "yes" if row["sure"] else "no") for row in rows],
            headers=("latency", "pairs", f"mean of {runs[0][0]}", "difference", "95 % interval", "beyond chance"),
            title=f"{name} against {runs[0][0]}, same agents", to=out)
    for name, reason in comparison.unpaired.items():
        out.print(f"\n{name}: not paired, {reason}")


def _signed(value: float | None) -> str:
    return wording.NONE if value is None else ("+" if value >= 0 else "-") + wording.seconds(abs(value))


def _range(row: dict[str, Any]) -> str:
    return wording.NONE if row["low_s"] is None else f"{_signed(row['low_s'])} to {_signed(row['high_s'])}"
