"""What allocators waste: reservations, transients, holes and block tails.

Lengths are tokens (or token slots); any other unit works as well wherever only ratios are taken.
"""

from __future__ import annotations

from collections.abc import Sequence


def allocation_efficiency(useful: float, allocated: float) -> float:
    """Return useful over allocated memory, ``eta_alloc``; 1 when nothing is allocated."""
    return useful / allocated if allocated > 0 else 1.0


def effective_occupancy(useful: float, pool: float) -> float:
    """Return useful memory over the whole pool, ``eta_effective``."""
    return useful / pool


def external_fragmentation(holes: Sequence[float], request: float, free: float | None = None) -> float:
    """Return the share of free memory that lies in holes too small for `request`: ``1 - (holes >= R) / free``.

    Parameters
    ----------
    holes
        Sizes of the contiguous free pieces.
    request
        Size asked for, in the same unit.
    free
        All free memory, if it is known by another count than the holes' sum.

    Returns
    -------
    float
        0 when every hole is large enough (or nothing is free), 1 when none is.
    """
    total = sum(holes) if free is None else free
    if total <= 0:
        return 0.0
    return 1.0 - sum(hole for hole in holes if hole >= request) / total


def static_efficiency(mean_tokens: float, s_max: float) -> float:
    """Return the expected efficiency of one buffer of `s_max` tokens a sequence: ``E[S] / S_max``."""
    return mean_tokens / s_max


def static_capacity(pool_bytes: float, s_max: int, bytes_per_token: float) -> int:
    """Return how many buffers of `s_max` tokens a pool holds."""
    return int(pool_bytes // (s_max * bytes_per_token))


def growth_peak(factor: float = 2.0) -> float:
    """Return the peak of a growing buffer, as a multiple of the old one: old and new live together, ``1 + factor``."""
    return 1.0 + factor


def growth_buffer_tokens(tokens: int, initial: int = 1, factor: float = 2.0) -> int:
    """Return the buffer a sequence of `tokens` sits in when buffers grow by `factor` from `initial` tokens."""
    size = float(initial)
    while size < tokens:
        size *= factor
    return int(size)


def growth_slack(tokens: int, initial: int = 1, factor: float = 2.0) -> int:
    """Return the token slots of that buffer that hold nothing yet."""
    return growth_buffer_tokens(tokens, initial, factor) - tokens


def first_fit(holes: Sequence[float], request: float) -> int | None:
    """Return the index of the first hole that holds `request`, or None."""
    return next((index for index, hole in enumerate(holes) if hole >= request), None)


def tail_waste(tokens: int, block_size: int) -> int:
    """Return the empty slots of a sequence's last block: ``(-S) mod B``."""
    return -tokens % block_size


def mean_tail_waste(block_size: int) -> float:
    """Return the mean empty slots a sequence when lengths are uniform modulo the block size: ``(B - 1)/2``."""
    return (block_size - 1) / 2.0


def mean_tail_waste_share(mean_tokens: float, block_size: int) -> float:
    """Return the share of allocated memory lost in tails: ``w / (E[S] + w)`` with ``w = (B - 1)/2``."""
    waste = mean_tail_waste(block_size)
    return waste / (mean_tokens + waste)


def blocks_needed(tokens: int, block_size: int) -> int:
    """Return the blocks a sequence takes: ``ceil(S / B)``."""
    return -(-tokens // block_size)


def full_blocks(tokens: int, block_size: int) -> tuple[int, int]:
    """Return the full blocks of a sequence and the tokens in its partly filled last one."""
    return divmod(tokens, block_size)


def paged_capacity(pool_bytes: float, mean_tokens: float, block_size: int, bytes_per_token: float) -> int:
    """Return how many sequences of `mean_tokens` on average a paged pool holds, tails included."""
    return int(pool_bytes // ((mean_tokens + mean_tail_waste(block_size)) * bytes_per_token))


def deep_copy_bytes(prefix_tokens: int, children: int, bytes_per_token: float) -> float:
    """Return the bytes a fork copies when every child gets its own prefix; copy-on-write copies none at the fork."""
    return prefix_tokens * children * bytes_per_token


def first_write_copies(prefix_tokens: int, block_size: int, writers: int, *, parent_alive: bool = False) -> int:
    """Return the blocks that copy-on-write copies once all of `writers` children have written.

    Nothing if the prefix ends at a block boundary. Otherwise each writer copies the shared tail block, except the
    last one holding it, if the parent does not hold it any more.
    """
    if prefix_tokens % block_size == 0 or writers <= 0:
        return 0
    return writers if parent_alive else writers - 1
