"""Which points a benchmark measures, the most valuable first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

#: The catalogue's models, read as plain YAML: a benchmark box has no pydantic.
MODELS = Path(__file__).resolve().parent.parent / "hardware_profiles" / "models"

Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shard:
    """What one GPU of a tensor-parallel group holds of a model's layer."""

    heads: int
    kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab: int

    @property
    def products(self) -> list[tuple[int, int]]:
        """(n, k) of the layer's matrix products: queries, keys and values; output; gate and up; down; logits."""
        wide = (self.heads + 2 * self.kv_heads) * self.head_dim
        found = [(wide, self.d_model), (self.d_model, self.heads * self.head_dim), (2 * self.d_ff, self.d_model),
                 (self.d_model, self.d_ff)]
        return found + ([(self.vocab, self.d_model)] if self.vocab else [])


def shard(model: str, tp: int) -> Shard:
    """Return the shard of a model of the catalogue (or of a YAML file); ValueError if it cannot be divided."""
    import yaml

    path = Path(model) if model.endswith((".yaml", ".yml")) else MODELS / f"{model}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(other.stem for other in MODELS.glob("*.yaml")))
        raise ValueError(f"no model is called {model!r}; there are {known}")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    heads, kv_heads, dim = int(data["n_heads"]), int(data["n_kv_heads"]), int(data["head_dim"])
    if data.get("mla"):
        raise ValueError(f"{model} has latent attention, which this benchmark does not measure")
    if heads % tp or (kv_heads % tp and tp % kv_heads):
        raise ValueError(f"{heads} heads on {kv_heads} cannot be divided over {tp} GPUs")
    width = int(data.get("d_model") or heads * dim)
    return Shard(heads // tp, max(1, kv_heads // tp), dim, width, int(data.get("d_ff") or 4 * width) // tp,
                 int(data.get("vocab") or 0) // tp)


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes to measure; the first of each are the most valuable."""

    tokens: tuple[int, ...] = (1, 64, 8192, 16, 512, 2048, 256, 4096, 32, 128, 1024, 16384, 4, 8, 2, 192, 768, 3072)
    batches: tuple[int, ...] = (1, 64, 16, 256, 32, 4, 128, 8)
    contexts: tuple[int, ...] = (8192, 65536, 1024, 16384, 4096, 32768, 131072, 2048, 256)
    blocks: tuple[int, ...] = (16, 64, 8, 32, 128, 4, 1)
    chunks: tuple[int, ...] = (512, 2048, 8192, 128, 4096, 1024)
    pasts: tuple[int, ...] = (32768, 0, 8192, 131072, 65536, 2048)
    pieces: tuple[int, ...] = tuple(4096 << i for i in (4, 6, 0, 2, 8, 10, 12, 1, 3, 5, 7, 9, 11))
    swap_bytes: int = 128 << 20
    most_kv_tokens: int = 4 << 20
    dtype: str = "bf16"


#: Small enough for a CPU in a test.
TINY = Grid(tokens=(1, 8, 32), batches=(1, 2), contexts=(64, 200), blocks=(16, 8), chunks=(8, 32), pasts=(0, 64),
            pieces=(4096, 16384), swap_bytes=1 << 17, most_kv_tokens=4096, dtype="fp32")
TINY_SHARD = Shard(heads=4, kv_heads=2, head_dim=32, d_model=128, d_ff=160, vocab=0)


def points(part: Shard, grid: Grid, *, storage: bool = False) -> list[Point]:
    """Return the points to measure: kernel classes take turns, each with its most valuable points first."""
    families = [_linear(part, grid), _decode(part, grid), _prefill(part, grid), _swap(grid), _copy(part, grid),
                _interference(part, grid), iter([{"kernel": "hbm_copy", "bytes": 8 * grid.swap_bytes}])]
    if storage:
        families.append(_storage(grid))
    turns = zip_longest(*families)
    found = {tuple(sorted(point.items())): point for point in chain.from_iterable(turns) if point is not None}
    return list(found.values())


def _linear(part: Shard, grid: Grid) -> Iterator[Point]:
    for tokens in grid.tokens:
        for n, k in part.products:
            yield {"kernel": "linear", "dtype": grid.dtype, "n": n, "k": k, "tokens": tokens}


def _heads(part: Shard, grid: Grid) -> Point:
    return {"heads": part.heads, "kv_heads": part.kv_heads, "head_dim": part.head_dim, "kv_dtype": grid.dtype}


def _decode(part: Shard, grid: Grid) -> Iterator[Point]:
    """Yield the batch x context grid at the usual block size; other sizes at six points, behind a dozen of the grid."""
    first = grid.blocks[0]
    pairs = [(b, c) for b in grid.batches for c in grid.contexts if b * c <= grid.most_kv_tokens]
    rank = {pair: grid.batches.index(pair[0]) + grid.contexts.index(pair[1]) for pair in pairs}
    best = sorted(pairs, key=lambda pair: rank[pair])
    # A short run should know the block sizes too; batches and contexts alike, as the grid's first ones are.
    cells = [(pair, first) for pair in best[:12]]
    cells += [(pair, block) for block in grid.blocks[1:] for pair in best[:6]]
    cells += [(pair, first) for pair in best[12:]]
    for (batch, context), block in cells:
        yield {"kernel": "decode_attention", **_heads(part, grid), "batch": batch, "context": context, "block": block}


def _prefill(part: Shard, grid: Grid) -> Iterator[Point]:
    pairs = [(c, p) for c in grid.chunks for p in grid.pasts]
    for new, past in sorted(pairs, key=lambda pair: grid.chunks.index(pair[0]) + grid.pasts.index(pair[1])):
        yield {"kernel": "prefill_attention", **_heads(part, grid), "batch": 1, "new": new, "past": past,
               "block": grid.blocks[0]}


def _swap(grid: Grid) -> Iterator[Point]:
    for size in grid.pieces:
        for both in (False, True):
            for direction in ("out", "in"):
                yield {"kernel": "swap", "direction": direction, "both_ways": both, "piece_bytes": size,
                       "pieces": max(1, min(1024, grid.swap_bytes // size))}


def _copy(part: Shard, grid: Grid) -> Iterator[Point]:
    size = 2 * part.kv_heads * part.head_dim * (4 if grid.dtype == "fp32" else 2) * grid.blocks[0]
    for pieces in (16, 1, 256):
        yield {"kernel": "copy_blocks", "piece_bytes": size, "pieces": pieces}


def _interference(part: Shard, grid: Grid) -> Iterator[Point]:
    batch, context = grid.batches[1], grid.contexts[0]
    for direction in ("out", "in"):
        for size in grid.pieces[:2]:
            yield {"kernel": "swap_while_decoding", **_heads(part, grid), "batch": batch, "context": context,
                   "block": grid.blocks[0], "direction": direction, "piece_bytes": size,
                   "pieces": max(1, min(1024, grid.swap_bytes // size))}


def _storage(grid: Grid) -> Iterator[Point]:
    for size in (grid.pieces[1], grid.pieces[-1], grid.pieces[0]):
        for depth in (1, 8, 32):
            for write in (False, True):
                yield {"kernel": "storage", "piece_bytes": size, "depth": depth, "write": write,
                       "pieces": max(depth, min(256, grid.swap_bytes // size))}
