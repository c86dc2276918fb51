"""Samples of all kernels as tables, whatever they come from: our own benchmark or a public collection.

Every table has one row a point and the column ``us``, microseconds on one GPU; the other columns are the point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: Columns of each table besides ``us``.
COLUMNS = {
    "linear": ("dtype", "n", "k", "tokens"),
    "decode_attention": ("heads", "kv_heads", "head_dim", "kv_dtype", "batch", "context"),
    "decode_blocks": ("heads", "kv_heads", "head_dim", "kv_dtype", "batch", "context", "block"),
    "prefill_attention": ("heads", "kv_heads", "head_dim", "kv_dtype", "batch", "new", "past"),
    "latent_decode": ("heads", "rank", "rope", "hidden", "kv_dtype", "dtype", "batch", "context"),
    "latent_prefill": ("heads", "rank", "rope", "hidden", "kv_dtype", "dtype", "batch", "new"),
    "all_reduce": ("gpus", "bytes"),
    "moe": ("experts", "top_k", "hidden", "width", "dtype", "tp", "tokens"),
    "swap": ("direction", "method", "both_ways", "piece_bytes", "pieces"),
}

#: Bytes of an element of the KV cache or the weights.
ELEMENT = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "fp32": 4.0}


@dataclass(slots=True)
class Frames:
    """Samples of one GPU.

    Attributes
    ----------
    gpu, device
        The catalogue's name of it, and its own.
    l2_bytes
        Its second-level cache: attention over less KV than that does not read HBM, which a model's step does.
    provenance
        Where the samples come from.
    planning
        False when they must not be used to plan (measured on a CPU).
    tables
        Kernel class -> samples, see `COLUMNS`.
    switches
        Number of GPUs -> bytes from which an all-reduce is another algorithm, as its library's source says.
    """

    gpu: str
    device: str
    l2_bytes: float
    provenance: dict[str, Any]
    planning: bool = True
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    switches: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def get(self, name: str) -> pd.DataFrame:
        """Return the samples of a kernel class; an empty table if there are none."""
        import pandas as pd

        table = self.tables.get(name)
        return table if table is not None else pd.DataFrame(columns=[*COLUMNS[name], "us"])


def kv_bytes(row: Any) -> Any:
    """Return the KV bytes that decode attention reads in one layer (a row, or a whole table); of latents too."""
    size = row["kv_dtype"].map(ELEMENT) if hasattr(row["kv_dtype"], "map") else ELEMENT[row["kv_dtype"]]
    elements = row["rank"] + row["rope"] if "rank" in row else 2.0 * row["kv_heads"] * row["head_dim"]
    return elements * size * row["batch"] * row["context"]
