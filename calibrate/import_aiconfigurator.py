"""Measured tables from an installed `aiconfigurator-core` (Apache-2.0, on PyPI; ``pip install 'kvplan[aic]'``).

The wheel holds kernel latencies that its authors measured on NVIDIA GPUs, in Parquet files, one a system, kernel,
backend and version. What is taken: matrix products (GEMM), attention of prompts and of decoding turns, the engine's
own all-reduce inside CUDA graphs, experts, latent attention as a module with its products. Its attention of prompts is
of uncached prompts only (``step`` 0), so attention on a cached past is modelled
(`sim.timing.measured_tables.PrefillTable`), not measured, in these profiles.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.frames import Frames
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: Systems of the wheel: catalogue's GPU, second-level cache in bytes (NVIDIA whitepapers).
SYSTEMS = {
    "a100_sxm": ("a100-sxm-80gb", 40e6), "h100_sxm": ("h100-sxm-80gb", 50e6), "h200_sxm": ("h200-sxm-141gb", 50e6),
    "b200_sxm": ("b200-180gb", 126e6), "gb200": ("gb200-186gb", 126e6),
}
_DTYPES = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
#: 8-bit weights with a scale for each block of 128 x 128 (DeepSeek, Qwen3) count as fp8 too.
_BLOCK_DTYPES = {**_DTYPES, "fp8_block": "fp8"}
#: Latent and rotary elements, hidden size of the models whose latent attention was measured.
_LATENT = {"deepseek-ai/DeepSeek-V3": (512, 64, 7168)}
_HEAD_DIMS = (64, 128, 256)
_KIB, _MIB = 1 << 10, 1 << 20
#: Where vLLM's all-reduce changes its algorithm, by GPUs. Its own kernel reads all peers at once below 512 KiB (up to 4
#: GPUs) or 256 KiB (8) and in two passes from there (csrc/custom_all_reduce.cuh; two GPUs never), and is used below
#: 8 MiB (device_communicators/custom_all_reduce.py).
_CUSTOM = {2: (8 * _MIB,), 4: (512 * _KIB, 8 * _MIB), 8: (256 * _KIB, 8 * _MIB)}
#: With symmetric memory it ends sooner, and symmetric memory goes up to and with a size of its own, then NCCL
#: (device_communicators/all_reduce_utils.py and symm_mem.py, github.com/vllm-project/vllm, Apache-2.0, read 2026-11):
#: compute capability 9.0 and 10.0.
_HOPPER = {2: (8 * _MIB, 64 * _MIB + 1), 4: (512 * _KIB, 8 * _MIB, 32 * _MIB + 1), 8: (256 * _KIB, 64 * _MIB + 1)}
_BLACKWELL = {2: (2 * _MIB, 8 * _MIB + 1), 4: (512 * _KIB, 2 * _MIB, 32 * _MIB + 1),
              8: (256 * _KIB, _MIB, 128 * _MIB + 1)}
#: GB200's table was taken without symmetric memory: its only steps are those of vLLM's own kernel.
_SWITCHES = {"a100_sxm": _CUSTOM, "h100_sxm": _HOPPER, "h200_sxm": _HOPPER, "b200_sxm": _BLACKWELL, "gb200": _CUSTOM}


def root() -> Path:
    """Return the folder of the wheel's measurements; InputError if it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise InputError("aiconfigurator-core is not installed; pip install 'kvplan[aic]'")
    return Path(spec.origin).parent / "systems"


def wheel_version() -> str:
    """Return the installed version of the wheel."""
    from importlib.metadata import version

    return version("aiconfigurator-core")


def read(system: str, backend: str = "vllm", version: str | None = None) -> Frames:
    """Read the tables of one GPU.

    Parameters
    ----------
    system
        As the wheel calls it: a100_sxm, h100_sxm, h200_sxm, b200_sxm or gb200.
    backend
        Serving engine whose kernels were measured.
    version
        Of the backend; the newest that has matrix products, when left out.

    Raises
    ------
    InputError
        The wheel is not installed, or has no such table.
    """
    base = root()
    if system not in SYSTEMS:
        raise InputError(f"there are {', '.join(SYSTEMS)}", field="system", got=system)
    data = base / "data" / system
    have = _versions(data / "gemm" / backend)
    if not have:
        raise InputError(f"{system} has no tables of this backend", field="backend", got=backend)
    chosen = version or have[-1]
    if chosen not in have:
        raise InputError(f"there are {', '.join(have)}", field="version", got=chosen)
    files: dict[str, Path] = {}
    tables = {
        "linear": _linear(_open(data, "gemm", backend, chosen, "gemm_perf", files)),
        "decode_attention": _decode(_open(data, "attention", backend, chosen, "generation_attention_perf", files)),
        "prefill_attention": _prefill(_open(data, "attention", backend, chosen, "context_attention_perf", files)),
        "all_reduce": _all_reduce(_open(data, "comm", backend, chosen, "custom_allreduce_perf", files)),
        "moe": _moe(_open(data, "moe", backend, chosen, "moe_perf", files)),
    }
    for name, table, reader in (("latent_decode", "mla_generation_module_perf", _latent_decode),
                                ("latent_prefill", "mla_context_module_perf", _latent_prefill)):
        if list((data / "mla" / backend).glob(f"*/{table}.parquet")):
            tables[name] = reader(_open(data, "mla", backend, chosen, table, files))
    gpu, l2_bytes = SYSTEMS[system]
    device = str(_open(data, "gemm", backend, chosen, "gemm_perf", {})["device"].iloc[0])
    provenance = {
        "source": f"aiconfigurator-core {wheel_version()} (PyPI, NVIDIA, Apache-2.0)", "system": system,
        "backend": backend, "backend_version": chosen, "device": device,
        "tables": {path.relative_to(base).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                   for path in files.values()},
        "not_measured": "attention of a prompt chunk on a cached past: modelled as an uncached prompt of equal "
                        "arithmetic; copies to the host",
        "command": f"kvplan calibrate import aiconfigurator --system {system} --backend {backend}",
    }
    return Frames(gpu=gpu, device=device, l2_bytes=l2_bytes, provenance=provenance, tables=tables,
                  switches=dict(_SWITCHES[system]) if backend == "vllm" else {})


def _versions(folder: Path) -> list[str]:
    from packaging.version import Version

    return sorted((path.name for path in folder.glob("*") if (path / "gemm_perf.parquet").is_file()), key=Version)


def _open(data: Path, kind: str, backend: str, version: str, name: str, files: dict[str, Path]) -> pd.DataFrame:
    """Read one table at the version asked for, or at the newest one if that has none."""
    import pandas as pd
    from packaging.version import Version

    folder = data / kind / backend
    found = {path.parent.name: path for path in folder.glob(f"*/{name}.parquet")}
    if not found:
        raise InputError(f"{data.name} has no {name} of {backend}")
    path = found.get(version) or found[max(found, key=Version)]
    files[name] = path
    return pd.read_parquet(path)


def _linear(table: pd.DataFrame) -> pd.DataFrame:
    table = table[table["gemm_dtype"].isin(_DTYPES)]
    return _named(table, {"gemm_dtype": "dtype", "m": "tokens", "n": "n", "k": "k"}, dtypes=("dtype",))


def _decode(table: pd.DataFrame) -> pd.DataFrame:
    table = _full(table).assign(context=lambda t: t["isl"] + t["step"])
    return _named(table, {**_SHAPE, "batch_size": "batch", "context": "context"}, dtypes=("kv_dtype",))


def _prefill(table: pd.DataFrame) -> pd.DataFrame:
    names = {**_SHAPE, "batch_size": "batch", "isl": "new", "step": "past"}
    return _named(_full(table), names, dtypes=("kv_dtype",))


_SHAPE = {"num_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_dim",
          "kv_cache_dtype": "kv_dtype"}


def _full(table: pd.DataFrame) -> pd.DataFrame:
    """Keep attention without a window, in 16 bits, of the head sizes in use."""
    keep = table["kv_cache_dtype"].isin(_DTYPES) & table["head_dim"].isin(_HEAD_DIMS)
    keep &= table["attn_dtype"].isin(("bfloat16", "float16"))
    if "window_size" in table:
        keep &= table["window_size"] == 0
    return table[keep]


def _all_reduce(table: pd.DataFrame) -> pd.DataFrame:
    if "backend" in table and table["backend"].str.contains("graph").any():
        table = table[table["backend"].str.contains("graph")]
    # The collection counts a message in elements of 16 bits.
    return _named(table.assign(bytes=2 * table["message_size"]), {"num_gpus": "gpus", "bytes": "bytes"})


def _latent_decode(table: pd.DataFrame) -> pd.DataFrame:
    table = _latent(table).assign(context=lambda t: t["isl"] + t["step"])
    names = {**_LATENT_SHAPE, "batch_size": "batch", "context": "context"}
    return _named(_quickest(table, names, "gemm_type"), names, dtypes=("kv_dtype",))


def _latent_prefill(table: pd.DataFrame) -> pd.DataFrame:
    table = _latent(table)
    names = {**_LATENT_SHAPE, "batch_size": "batch", "isl": "new"}
    return _named(_quickest(table[table["step"] == 0], names, "gemm_type"), names, dtypes=("kv_dtype",))


_LATENT_SHAPE = {"num_heads": "heads", "rank": "rank", "rope": "rope", "hidden": "hidden",
                 "kv_cache_dtype": "kv_dtype", "gemm_type": "dtype"}


def _latent(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the models whose shape is known, and say the shape."""
    table = table[table["model"].isin(_LATENT) & table["gemm_type"].isin(_BLOCK_DTYPES)
                  & table["kv_cache_dtype"].isin(_DTYPES)]
    shapes = [_LATENT[str(name)] for name in table["model"]]
    return table.assign(**{name: [shape[i] for shape in shapes] for i, name in enumerate(("rank", "rope", "hidden"))})


def _moe(table: pd.DataFrame) -> pd.DataFrame:
    keep = table["moe_dtype"].isin(_BLOCK_DTYPES) & (table["moe_ep_size"] == 1)
    if "distribution" in table:
        keep &= table["distribution"].isin(("power_law_1.2", "power_law"))
    names = {"num_experts": "experts", "topk": "top_k", "hidden_size": "hidden", "inter_size": "width",
             "moe_dtype": "dtype", "moe_tp_size": "tp", "num_tokens": "tokens"}
    return _named(_quickest(table[keep], names, "moe_dtype"), names)


def _quickest(table: pd.DataFrame, names: dict[str, str], dtype: str) -> pd.DataFrame:
    """Keep the quickest of several kernels, or of both kinds of fp8: the one an engine would use.

    (Experts in fp8 with one scale a tensor are up to four times slower than in blocks in this collection.)
    """
    table = table.assign(**{dtype: table[dtype].map(_BLOCK_DTYPES)})
    return table.groupby([*names], as_index=False)["latency"].min()


def _named(table: pd.DataFrame, names: dict[str, str], dtypes: tuple[str, ...] = ()) -> pd.DataFrame:
    """Keep and rename columns, turn milliseconds into microseconds, and take the median of repeated points."""
    chosen: Any = table[[*names, "latency"]].rename(columns=names)
    for column in dtypes:
        chosen[column] = chosen[column].map(_DTYPES)
    chosen["us"] = chosen.pop("latency") * 1e3
    chosen = chosen[chosen["us"] > 0]
    return chosen.groupby(list(names.values()), as_index=False)["us"].median()
