"""Profiles that Vidur measured (github.com/microsoft/vidur, ``data/profiling/compute/<gpu>/<model>``).

A folder of CSV files: ``mlp.csv`` holds the matrix products of one GPU's shard by tokens, ``attention.csv`` attention
of decoding batches and of prompt chunks on a cached past; ``all_reduce.csv`` (network profiles) collectives by bytes.
Their ``time_stats.<operation>.median`` columns are milliseconds.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.frames import Frames
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: Columns of a matrix product's output and input widths, as expressions of `mlp.csv`.
_PRODUCTS = {
    "attn_pre_proj": lambda t: ((t["n_head"] + 2 * t["n_kv_head"]) * t["n_embd"] // t["n_head"] // _tp(t), t["n_embd"]),
    "attn_post_proj": lambda t: (t["n_embd"], t["n_embd"] // _tp(t)),
    "mlp_up_proj": lambda t: ((1 + t["use_gated_mlp"].astype(int)) * t["n_expanded_embd"] // _tp(t), t["n_embd"]),
    "mlp_down_proj": lambda t: (t["n_embd"], t["n_expanded_embd"] // _tp(t)),
}


def read(folder: Path, gpu: str) -> Frames:
    """Read a folder of Vidur's CSV files.

    Parameters
    ----------
    folder
        Holds ``mlp.csv``, ``attention.csv`` or ``all_reduce.csv``, at least one.
    gpu
        The catalogue's GPU they were measured on.

    Raises
    ------
    InputError
        None of the files is there, or one lacks a column.
    """
    import hardware_profiles

    tables: dict[str, pd.DataFrame] = {}
    hashes = {}
    for name, reader in (("mlp", _mlp), ("attention", _attention), ("all_reduce", _all_reduce)):
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        import pandas as pd

        hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        try:
            tables.update(reader(pd.read_csv(path)))
        except KeyError as error:
            raise InputError(f"has no column {error.args[0]!r}", file=path) from None
    if not tables:
        raise InputError("holds none of mlp.csv, attention.csv, all_reduce.csv", file=folder)
    hardware_profiles.gpu(gpu)
    provenance = {"source": "Vidur profiling data (microsoft/vidur, MIT)", "folder": folder.name, "files": hashes,
                  "command": f"kvplan calibrate import vidur {folder.name} --gpu {gpu}"}
    return Frames(gpu=gpu, device=gpu, l2_bytes=0.0, provenance=provenance, tables=tables)


def _tp(table: pd.DataFrame) -> Any:
    return table["num_tensor_parallel_workers"]


def _mlp(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    import pandas as pd

    parts = []
    for name, widths in _PRODUCTS.items():
        column = f"time_stats.{name}.median"
        if column in table:
            n, k = widths(table)
            parts.append(pd.DataFrame({"dtype": "bf16", "n": n, "k": k, "tokens": table["num_tokens"],
                                       "us": table[column] * 1e3}))
    if not parts:
        raise KeyError("time_stats.mlp_up_proj.median")
    return {"linear": _median(pd.concat(parts), ["dtype", "n", "k", "tokens"])}


def _attention(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    shape = {"heads": table["n_q_head"] // _tp(table), "kv_heads": (table["n_kv_head"] // _tp(table)).clip(lower=1),
             "head_dim": table["n_embd"] // table["n_q_head"]}
    whole = table.assign(**shape, kv_dtype="bf16")
    prompt = whole["is_prefill"].astype(bool)
    decode = whole[~prompt].assign(batch=lambda t: t["batch_size"], context=lambda t: t["kv_cache_size"] + 1,
                                   us=lambda t: t["time_stats.attn_decode.median"] * 1e3)
    prefill = whole[prompt].assign(batch=1, new=lambda t: t["prefill_chunk_size"], past=lambda t: t["kv_cache_size"],
                                   us=lambda t: t["time_stats.attn_prefill.median"] * 1e3)
    names = ["heads", "kv_heads", "head_dim", "kv_dtype", "batch"]
    return {"decode_attention": _median(decode, [*names, "context"]),
            "prefill_attention": _median(prefill, [*names, "new", "past"])}


def _all_reduce(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if "devices_per_node" in table:  # those that leave a node are slower and not of a replica
        table = table[table["devices_per_node"] == table["num_workers"]]
    found = table.assign(gpus=table["num_workers"], bytes=table["size"],
                         us=table["time_stats.all_reduce.median"] * 1e3)
    return {"all_reduce": _median(found, ["gpus", "bytes"])}


def _median(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    table = table[table["us"] > 0]
    return table.groupby(names, as_index=False)["us"].median()
