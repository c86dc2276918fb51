"""Prompts given as chained hashes of fixed blocks, mapped onto streams.

An id stands for a block together with everything in front of it: equal ids mean equal prefixes. A request's ids
therefore start with some seen before and go on with new ones; the known ones name a stream and a position on it, and
the new ones either extend that stream (if the prefix ended where the stream does) or start another one attached there.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from sim.errors import InputError
from workloads.trajectory import Stream


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
    Memory is one dictionary entry and one list item an id seen. Ids that are not chained (one that appears again
    after a block that is new, or at another position) are an error, as nothing sensible can be made of them.
    """

    def __init__(self, block: int, label: str = "context") -> None:
        self.block = block
        self.label = label
        self._stream_of: dict[int, Stream] = {}
        self._ids_of: dict[Stream, list[int]] = {}  # a stream's own blocks, from where it attaches

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
        known = self._stream_of
        count = bisect_left(ids, True, key=lambda block_id: block_id not in known)
        new = ids[count:]
        self._check(ids, count, new)
        position = count * self.block
        stream = known[ids[count - 1]] if count else None
        own = self._ids_of[stream] if stream is not None else []
        if stream is not None:
            index = (position - stream.attach) // self.block - 1
            if not 0 <= index < len(own) or own[index] != ids[count - 1]:
                raise InputError("names a block at two places; ids must be hashes of the whole prefix",
                                 field="hash_ids", got=ids[count - 1])
        if not new:
            assert stream is not None
            return stream
        if stream is None or position != stream.attach + len(own) * self.block:
            stream = Stream(stream, position, self.label)
            own = self._ids_of[stream] = []
        own += new
        known.update(dict.fromkeys(new, stream))
        return stream

    def _check(self, ids: list[int], count: int, new: list[int]) -> None:
        """Refuse ids that are not chained: after the first new one none may be known, and none may repeat."""
        known: Any = self._stream_of
        if not all(map(known.__contains__, ids[:count])) or not known.keys().isdisjoint(new) \
                or len(set(new)) != len(new):
            twice = (block_id for block_id in new if block_id in known or new.count(block_id) > 1)
            raise InputError("comes back after a block that is new; ids must be hashes of the whole prefix",
                             field="hash_ids", got=next(twice, ids[0]))
