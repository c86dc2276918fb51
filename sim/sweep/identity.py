"""What decides the numbers of a run: equal hashes mean equal results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.sweep.provenance import provenance

if TYPE_CHECKING:
    from sim.scenario.model import Scenario

#: Fields of a scenario that change no number of one replication.
ASIDE = ("name", "replications", "sweep", "vary")


class Identity:
    """Hashes runs; files are read once.

    A run is known by its resolved scenario (without `ASIDE`), the replication, the version of kvplan, and the contents
    of the profiles and the trace it is made from.
    """

    def __init__(self) -> None:
        self._data: dict[str, dict[str, str]] = {}

    def data(self, scenario: Scenario) -> dict[str, str]:
        """Return version and content hashes of the files behind a scenario, by name."""
        from sim.scenario.deployment import deploy

        agents = scenario.workload.agents
        what = json.dumps([_plain(scenario.model), _plain(scenario.hardware), _plain(agents)], sort_keys=True)
        if what not in self._data:
            origin = provenance(scenario, deploy(scenario), Path())
            self._data[what] = {"kvplan": origin["kvplan"], **origin["sha256"]}
        return self._data[what]

    def of(self, scenario: Scenario, replication: int) -> str:
        """Return the hash of one run, 20 hexadecimal digits."""
        what = {"scenario": resolved(scenario), "replication": replication, "data": self.data(scenario)}
        text = json.dumps(what, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def resolved(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as plain data, without the fields that change no number."""
    data: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in data.items() if key not in ASIDE}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Return in words where two trees of plain data differ: ``engine.block_size 16, now 32``."""
    found: list[str] = []
    for key in dict.fromkeys([*old, *new]):
        at = f"{path}.{key}" if path else str(key)
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, at)
        elif before != after:
            found.append(f"{at} {_short(before)}, now {_short(after)}")
    return found


def _short(value: Any) -> str:
    from sim.errors import shorten

    return shorten(json.dumps(value, ensure_ascii=False), 40)
