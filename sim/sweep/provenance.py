"""What it takes to run a scenario again, bit for bit."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata, resources
from pathlib import Path
from typing import Any

#: The key under which `run.yaml` holds provenance, after the resolved scenario.
KEY = "provenance"


def version() -> str:
    """Return the version of kvplan that is installed."""
    try:
        return metadata.version("kvplan")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def compiled() -> bool:
    """Return whether the engine that runs is the compiled one (same code, same results)."""
    from sim.engine import replica

    return not str(replica.__file__).endswith(".py")


def provenance(scenario: Any, deployment: Any, base_dir: Path) -> dict[str, Any]:
    """Return version, seed entropy, and a hash of every data file the run was made from."""
    agents = scenario.workload.agents
    files = {f"hardware_profiles/{kind}/{name}.yaml": resources.files("hardware_profiles") / kind / f"{name}.yaml"
             for kind, name in (("models", deployment.model.name), ("nodes", deployment.node.name),
                                ("gpus", deployment.gpu.name))}
    if isinstance(agents, str):
        files[f"workloads/library/{agents}.yaml"] = resources.files("workloads") / "library" / f"{agents}.yaml"
    measured = getattr(scenario.timing, "measured", None) if hasattr(scenario, "timing") else None
    if measured is not None:
        from sim.timing.measured_profile import find

        files[f"hardware_profiles/measured/{measured}"] = find(measured)
    hashes = {name: _digest(Path(str(path))) for name, path in files.items() if path.is_file()}
    trace = getattr(agents, "trace", None)
    if trace is not None:
        path = base_dir / str(trace)
        hashes |= {str(file): _digest(file) for file in _files(path)}
    return {
        "kvplan": version(), "python": platform.python_version(), "numpy": metadata.version("numpy"),
        "seed_entropy": [scenario.seed, scenario.replications], "base_dir": str(base_dir.resolve()), "sha256": hashes,
    }


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
