"""The catalogues on a terminal: hardware, models, agents and traces."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.metrics.wording import number, percent, seconds, usd
from sim.report.tables import show_rows


def list_hardware() -> None:
    """Print nodes, then GPUs."""
    import hardware_profiles as profiles

    nodes = [profiles.node(name) for name in profiles.names("nodes")]
    show_rows([(node.name, f"{node.gpus} x {node.gpu.name}", amount(node.gpu.hbm_bytes), amount(node.host_dram_bytes),
                f"{rate(node.host_link.out_Bps)} / {rate(node.host_link.in_Bps)}",
                usd(node.price_usd_per_gpu_hour) if node.price_usd_per_gpu_hour else "-") for node in nodes],
              headers=("node", "GPUs", "HBM each", "host memory", "host link out / in", "USD/GPU h"))
    gpus = [profiles.gpu(name) for name in profiles.names("gpus")]
    print()
    show_rows([(gpu.name, amount(gpu.hbm_bytes), rate(gpu.hbm_Bps), f"{gpu.flops('bf16') / 1e12:,.0f}",
                rate(gpu.nvlink_Bps) if gpu.nvlink_Bps else "-") for gpu in gpus],
              headers=("GPU", "HBM", "HBM bandwidth", "bf16 TFLOP/s", "NVLink"))


def show_hardware(name: str) -> None:
    """Print the file of a node, a GPU or a link."""
    _show(name, "hardware_profiles", ("nodes", "gpus", "links"), "hardware")


def list_models() -> None:
    """Print models with the figures that decide their memory."""
    import hardware_profiles as profiles

    models = [profiles.model(name) for name in profiles.names("models")]
    show_rows([(model.name, f"{model.n_params / 1e9:,.1f}", f"{model.n_active_params / 1e9:,.1f}",
                f"{model.kv_bytes_per_token('bf16') / 1024:,.1f}", amount(model.weight_bytes("bf16")),
                f"{model.context_limit:,}" if model.context_limit else "-") for model in models],
              headers=("model", "parameters, 1e9", "active, 1e9", "KV KiB/token, bf16", "weights, bf16", "context"))


def show_model(name: str) -> None:
    """Print the file of a model."""
    _show(name, "hardware_profiles", ("models",), "model")


def import_model(file: Path) -> None:
    """Print a Hugging Face config.json as a model profile."""
    from hardware_profiles.model_import import import_config, to_yaml

    print(to_yaml(import_config(file)), end="")


def list_workloads() -> None:
    """Print the agents of the library with the first line of their files."""
    import workloads

    show_rows([(name, _first_comment(_text("workloads", "library", name))) for name in workloads.library_names()],
              headers=("agent", ""))


def _text(package: str, folder: str, name: str) -> str:
    return (resources.files(package) / folder / f"{name}.yaml").read_text(encoding="utf-8")


def _show(name: str, package: str, folders: tuple[str, ...], what: str) -> None:
    known = {entry.name.removesuffix(".yaml"): folder for folder in reversed(folders)
             for entry in (resources.files(package) / folder).iterdir() if entry.name.endswith(".yaml")}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
        raise InputError(f"unknown {what}; " + (f"did you mean {' or '.join(near)}?" if near
                                                else f"known: {', '.join(sorted(known))}"), got=name)
    print(_text(package, known[name], name), end="")


def _first_comment(text: str) -> str:
    line = text.lstrip().split("\n", 1)[0]
    return line.lstrip("# ") if line.startswith("#") else ""


def amount(value: float) -> str:
    """Return bytes in the largest binary unit that leaves a number of at least one."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.0f} B"


def rate(value: float) -> str:
    """Return a bandwidth in GB/s or TB/s."""
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else f"{value / 1e9:.3g} GB/s"


def show_stats(stats: Mapping[str, Any]) -> None:
    """Print the statistics of a workload."""
    columns = ("mean", "p10", "p50", "p90", "p99", "max")
    named = [(name.removesuffix("_s").replace("_", " "), value) for name, value in stats.items()]
    show_rows([(name, number(value) if isinstance(value, int) else percent(value)) for name, value in named
               if not isinstance(value, dict)])
    waits = [(f"wait: {tool}", found) for tool, found in stats["waits_by_tool"].items()]
    rows = [(name, value) for name, value in named if isinstance(value, dict) and "n" in value and name != "wait"]
    rows += [("wait", stats["wait_s"]), *waits]
    print()
    show_rows([(name, number(found["n"]), *((seconds if name.startswith("wait") else number)(found[c])
                                            for c in columns)) for name, found in rows if found["n"]],
              headers=("", "n", *columns))
