"""What a router remembers of the prompts it has sent to each replica.

Such a router knows nothing of what a replica still has: it takes the prompts it sent there last for what is cached
there. llm-d's default prefix scorer works like this (`approximateprefix` in llm-d-router; before that the package
`multi/prefix` of the Gateway API inference extension).
"""

from __future__ import annotations

from workloads.trajectory import Stream


class Sent:
    """The prompts sent to one replica, the latest first, as far as `capacity` tokens go.

    A prompt is remembered as the parts of the streams it is made of. The one that was part of a prompt longest ago is
    forgotten first, from its end; a prompt's beginning is touched after its end, so nothing is remembered whose
    beginning is not.
    """

    __slots__ = ("_ends", "capacity", "tokens")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        #: Tokens remembered.
        self.tokens = 0
        #: Stream -> absolute position up to which it is remembered; the one to be forgotten first comes first.
        self._ends: dict[Stream, int] = {}

    def match(self, stream: Stream, tokens: int) -> int:
        """Return the length in tokens of the longest remembered prefix of `stream`'s first `tokens` tokens."""
        at: Stream | None = stream
        while at is not None:
            found = min(self._ends.get(at, 0), tokens)
            if found > at.attach:
                return found
            tokens = min(tokens, at.attach)
            at = at.parent
        return 0

    def add(self, stream: Stream, tokens: int) -> None:
        """Remember that the first `tokens` tokens of `stream` were sent, and forget what is too much."""
        at: Stream | None = stream
        while at is not None:
            if tokens > at.attach:
                before = self._ends.pop(at, at.attach)
                self._ends[at] = after = max(before, tokens)
                self.tokens += after - before
                tokens = at.attach
            at = at.parent
        while self.tokens > self.capacity:
            oldest = next(iter(self._ends))
            cut = min(self.tokens - self.capacity, self._ends[oldest] - oldest.attach)
            self.tokens -= cut
            self._ends[oldest] -= cut
            if self._ends[oldest] == oldest.attach:
                del self._ends[oldest]
