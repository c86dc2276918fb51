"""Prompts given as chained hashes of fixed blocks, mapped onto streams.

An id stands for a block together with everything in front of it: equal ids mean equal prefixes. A request's ids
therefore start with some seen before and go on with new ones; the known ones name a stream and a position on it, and
the new ones either extend that stream (if the prefix ended where the stream does) or start another one attached there.

Traces number their blocks in the order of appearance, so new ids nearly always come as a run of consecutive numbers:
a run costs 32 bytes, whatever its length. Ids that are real hashes cost a dictionary entry each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np

from sim.errors import InputError
from workloads.trajectory import Stream

_Run = tuple[int, int]  # first id, how many consecutive ones
_SHORT = 48  # ids; up to here plain Python finds runs faster than NumPy
_LARGEST = 2**63 - 1
_TWO_PLACES = "names a block at two places; ids must be hashes of the whole prefix"
_COMES_BACK = "comes back after a block that is new; ids must be hashes of the whole prefix"


class HashedPrompts:
    """The prompts of one scope of ids.

    Parameters
    ----------
    block
        Tokens a hash covers.
    label
        What the streams are called.

    Notes
    -----
    Ids that are not chained (one that appears again after a block that is new, or at another position) are an error,
    as nothing sensible can be made of them.
    """

    def __init__(self, block: int, label: str = "context") -> None:
        self.block = block
        self.label = label
        self._streams: list[Stream] = []
        self._own = array("q")  # blocks of each stream, from where it attaches
        # Runs of known ids, sorted by the first: that, how many, the stream's number, the first one's place on it.
        self._first, self._count = array("q"), array("q")
        self._stream, self._place = array("q"), array("q")
        self._single: dict[int, int] = {}  # an id on its own -> stream number * 2**40 + place

    def place(self, ids: list[int], tokens: int) -> Stream:
        """Return the stream whose first `tokens` tokens are this prompt.

        The ids cover a prefix of the prompt (the rest belongs to this prompt alone), or reach past its end by less
        than a block (then the last one counts up to `tokens`).

        Raises
        ------
        InputError
            More ids than the prompt has blocks, or ids that are not chained.
        """
        covered = len(ids) * self.block
        if covered - self.block >= tokens and ids:
            raise InputError(f"{len(ids)} ids of {self.block} tokens for a prompt of {tokens} tokens",
                             field="hash_ids", got=len(ids))
        stream = self._cover(ids) if ids else None
        if covered < tokens:  # a tail that nobody can match: a stream of its own
            return Stream(stream, covered if stream is not None else 0, f"{self.label} (tail)")
        assert stream is not None
        return stream

    def _cover(self, ids: list[int]) -> Stream:
        """Return the stream that holds all of `ids`, made or extended as needed."""
        runs = _runs(ids)
        at, blocks = -1, 0  # the stream's number, and how many blocks are matched
        for index, (first, count) in enumerate(runs):
            while count:
                known = self._find(first)
                if known is None:
                    return self._append(at, blocks, [(first, count), *runs[index + 1:]])
                number, place, length = known
                stream = self._streams[number]
                fits = stream.attach + place * self.block == blocks * self.block and (
                    number == at or (place == 0 and stream.parent is (self._streams[at] if at >= 0 else None)))
                if not fits:
                    raise InputError(_TWO_PLACES, field="hash_ids", got=first)
                matched = min(count, length)
                at, blocks, first, count = number, blocks + matched, first + matched, count - matched
        return self._streams[at]

    def _find(self, block_id: int) -> tuple[int, int, int] | None:
        """Return the stream's number, the place on it, and how many known ids follow in a run (this one included)."""
        single = self._single.get(block_id)
        if single is not None:
            return single >> 40, single & (2**40 - 1), 1
        index = bisect_right(self._first, block_id) - 1
        if index < 0:
            return None
        offset = block_id - self._first[index]
        if offset >= self._count[index]:
            return None
        return self._stream[index], self._place[index] + offset, self._count[index] - offset

    def _append(self, at: int, blocks: int, runs: list[_Run]) -> Stream:
        """Put new blocks behind the first `blocks` blocks of a stream; return the stream that holds them."""
        self._check(runs)
        stream = self._streams[at] if at >= 0 else None
        if stream is None or blocks * self.block != stream.attach + self._own[at] * self.block:
            stream = Stream(stream, blocks * self.block, self.label)
            at = len(self._streams)
            self._streams.append(stream)
            self._own.append(0)
        for first, count in runs:
            self._note(first, count, at, self._own[at])
            self._own[at] += count
        return stream

    def _check(self, runs: list[_Run]) -> None:
        """Refuse new ids that repeat, or of which one is known."""
        last = -(2**80)
        for first, count in sorted(runs):
            index = bisect_right(self._first, first + count - 1) - 1
            known = index >= 0 and self._first[index] + self._count[index] > first
            if first < last or known or not self._single.keys().isdisjoint(range(first, first + count)):
                raise InputError(_COMES_BACK, field="hash_ids", got=first)
            last = first + count

    def _note(self, first: int, count: int, number: int, place: int) -> None:
        """Remember where a run of new ids lies."""
        size = len(self._first)
        in_order = not size or first > self._first[size - 1]
        if not 0 <= first <= _LARGEST - count or (count == 1 and not in_order):
            self._single.update((first + offset, (number << 40) + place + offset) for offset in range(count))
            return
        if in_order and size and first == self._first[-1] + self._count[-1] and number == self._stream[-1] \
                and place == self._place[-1] + self._count[-1]:
            self._count[-1] += count
            return
        index = size if in_order else bisect_right(self._first, first)
        for column, value in ((self._first, first), (self._count, count), (self._stream, number), (self._place, place)):
            column.insert(index, value)


def _runs(ids: list[int]) -> list[_Run]:
    """Return `ids` as runs of consecutive numbers."""
    if len(ids) > _SHORT:
        try:
            numbers = np.array(ids, dtype=np.int64)
        except OverflowError:
            pass
        else:
            cuts = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
            return [(ids[start], end - start) for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    found: list[_Run] = []
    start = 0
    for index in range(1, len(ids) + 1):
        if index == len(ids) or ids[index] != ids[index - 1] + 1:
            found.append((ids[start], index - start))
            start = index
    return found
