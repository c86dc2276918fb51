"""The folder of a sweep: what it was started with, a folder for each run, and the table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.sweep import identity, rows
from sim.sweep.store import _PARTIAL, OutputError, _say
from sim.writing import check_place

if TYPE_CHECKING:
    from sim.sweep.points import Plan

MANIFEST, TABLE, RUNS, ROW, LOCK = "sweep.yaml", "points.parquet", "runs", "row.parquet", ".lock"


class Folder:
    """Where a sweep's results lie.

    Parameters
    ----------
    path
        The folder; it is made when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, key: str) -> Path:
        """Return the folder of one run."""
        return self.path / RUNS / key

    def row(self, key: str) -> Path:
        """Return the file that says that a run is finished, and what came out."""
        return self.run(key) / ROW

    @contextmanager
    def opened(self, plan: Plan, data: Mapping[str, str], *, force: bool) -> Iterator[None]:
        """Claim the folder for this sweep, and let it go afterwards.

        Raises
        ------
        InputError
            Nothing may be written there, it holds something else, or the sweep of another scenario (unless `force`),
            or another process is at work.
        OutputError
            The file system refused.
        """
        try:
            check_place(self.path, field="--output", folder=True, make_parents=True)
            if self.path.exists() and not self.path.is_dir():
                raise InputError("the output folder is a file", got=str(self.path))
            self._check_strangers()
            known = None if force else self._known()
            if known is not None:
                self._check_same(known, plan, data)
            self.path.mkdir(parents=True, exist_ok=True)
            with _locked(self.path / LOCK):
                self._write_manifest(plan, data)
                for stale in (self.path / RUNS).glob(f"{_PARTIAL}*"):
                    shutil.rmtree(stale, ignore_errors=True)
                for left in self.path.glob(f".{TABLE}-*"):
                    left.unlink(missing_ok=True)
                yield
        except OSError as error:
            raise error if isinstance(error, OutputError) else OutputError(_say(self.path, error)) from error

    def finished(self, keys: Mapping[tuple[int, int], str], *, retry: bool = False) -> dict[str, rows.Row]:
        """Return the rows that are there already: key -> row; with `retry`, those of failed runs are left out.

        Raises
        ------
        InputError
            A row's file is damaged.
        """
        found: dict[str, rows.Row] = {}
        for key in dict.fromkeys(keys.values()):
            path = self.row(key)
            if path.exists():
                row = rows.read(path)
                if not (retry and row["status"] == "failed"):
                    found[key] = row
        return found

    def _check_strangers(self) -> None:
        if not self.path.exists():
            return
        strangers = sorted(entry.name for entry in self.path.iterdir()
                           if entry.name not in (MANIFEST, TABLE, RUNS, LOCK) and not entry.name.startswith(f".{TABLE}")
                           and not entry.name.startswith(f".{MANIFEST}"))
        if strangers:
            raise InputError(f"the output folder is not empty and {strangers[0]} is not part of a sweep",
                             got=str(self.path))
        for name in (MANIFEST, TABLE, LOCK, RUNS):
            if (self.path / name).exists() and (self.path / name).is_dir() != (name == RUNS):
                kind = "file" if name == RUNS else "folder"
                raise InputError(f"the output folder is not that of a sweep: its {name} is a {kind}",
                                 got=str(self.path))
        if (self.path / RUNS).exists() and not (self.path / MANIFEST).exists():
            raise InputError(f"the output folder holds {RUNS} but no {MANIFEST}: it is not the folder of a sweep",
                             got=str(self.path))

    def _known(self) -> dict[str, Any] | None:
        import yaml

        path = self.path / MANIFEST
        if not path.exists():
            return None
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not isinstance(data, dict) or not isinstance(data["scenario"], dict):
                raise ValueError("not a mapping")
            return data
        except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
            raise InputError(f"damaged: {' '.join(str(error).split())[:120]}; --force writes it anew",
                             file=path) from None

    def _check_same(self, known: Mapping[str, Any], plan: Plan, data: Mapping[str, str]) -> None:
        changed = identity.differences(known["scenario"], _plain(plan)["scenario"])
        before = known.get("data") or {}
        changed += [f"{name} has changed" if name != "kvplan" else f"kvplan {before[name]}, now {data[name]}"
                    for name in data if name in before and before[name] != data[name]]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise InputError(f"the sweep there was started with another scenario: {'; '.join(changed[:3])}{more}; give "
                             "another folder, or --force to go on with this one", file=self.path)

    def _write_manifest(self, plan: Plan, data: Mapping[str, str]) -> None:
        import yaml

        text = yaml.safe_dump({**_plain(plan), "data": dict(data)}, sort_keys=False, width=110, allow_unicode=True)
        partial = self.path / f".{MANIFEST}-new"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / MANIFEST)


def _plain(plan: Plan) -> dict[str, Any]:
    """Return what the manifest holds, as it comes back from YAML."""
    import json

    what = {"name": plan.base.name, "scenario": identity.resolved(plan.base), "sweep": plan.section,
            "points": len(plan.points), "replications": plan.replications}
    made: dict[str, Any] = json.loads(json.dumps(what))
    return made


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out for as long as this one lives."""
    try:
        import fcntl
    except ImportError:  # not POSIX: files are renamed whole anyway
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("another sweep is at work in this folder", file=path.parent) from None
        yield
