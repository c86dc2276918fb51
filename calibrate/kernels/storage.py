"""Reads and writes of block-sized pieces past the page cache (O_DIRECT), at a queue depth, in a given folder."""

from __future__ import annotations

import mmap
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Pieces and buffers are aligned to this, as O_DIRECT asks for.
ALIGN = 4096


def seconds(folder: Path, piece_bytes: int, pieces: int, depth: int, *, write: bool,
            seed: int = 0) -> tuple[float, str]:
    """Return the seconds that moving so many pieces takes, and how: ``direct`` or, where refused, ``buffered``.

    Every piece is checked: what is read must be what was written.
    """
    size = -(-piece_bytes // ALIGN) * ALIGN
    path = folder / f".kvplan-bench-{os.getpid()}"
    flags, how = os.O_RDWR | os.O_CREAT, "buffered"
    direct = getattr(os, "O_DIRECT", 0)
    try:
        handle = os.open(path, flags | direct)
        how = "direct" if direct else how
    except OSError:
        handle = os.open(path, flags)
    try:
        handle, how = _fill(handle, how, path, flags, size, pieces)
        order = list(range(pieces))
        random.Random(seed).shuffle(order)
        begin = time.perf_counter()
        with ThreadPoolExecutor(depth) as pool:
            list(pool.map(lambda share: _move(handle, order[share::depth], size, write), range(depth)))
        if write:
            os.fsync(handle)
        return time.perf_counter() - begin, how
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)


def _fill(handle: int, how: str, path: Path, flags: int, size: int, pieces: int) -> tuple[int, str]:
    """Write the file once, so that reads find something; fall back to buffered I/O if O_DIRECT is refused."""
    try:
        _move(handle, range(pieces), size, True)
    except OSError:
        if how == "buffered":
            raise
        os.close(handle)
        handle, how = os.open(path, flags), "buffered"
        _move(handle, range(pieces), size, True)
    os.fsync(handle)
    return handle, how


def _move(handle: int, which: range | list[int], size: int, write: bool) -> None:
    with mmap.mmap(-1, size) as buffer:
        for piece in which:
            mark = (piece % 251 + 1).to_bytes(1, "little")
            if write:
                buffer[:1] = mark
                if os.pwritev(handle, [buffer], piece * size) != size:
                    raise OSError(f"piece {piece} was written in part only")
            else:
                os.preadv(handle, [buffer], piece * size)
                if buffer[:1] != mark:
                    raise OSError(f"piece {piece} does not hold what was written")
