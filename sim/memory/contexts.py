"""Contexts in contiguous buffers: what a buffer holds, the turn that writes it, and the pauses that keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.memory.allocators.paged import BlockPool
from sim.memory.kv_cache import Sequence
from sim.memory.prefix_tree import Node, PrefixTree
from workloads.trajectory import Stream


class Context(Node):
    """What one buffer holds: the first `tokens` tokens of `stream`, in a buffer of `end` slots.

    Attributes
    ----------
    number
        Its sequence in the allocator.
    alive
        Whether it still has its buffer.
    in_use
        Whether a running turn writes it.
    pinned, held
        Pauses that keep it, and the slots its buffer had when they began to.
    """

    __slots__ = ("alive", "held", "in_use", "number", "pinned")

    def __init__(self, stream: Stream, owner: int, number: int) -> None:
        super().__init__(stream, None, 0, owner)
        self.tokens = 0
        self.number = number
        self.alive = self.in_use = True
        self.pinned = self.held = 0


class BufferSequence(Sequence):
    """A running turn and the context that it writes."""

    __slots__ = ("context",)

    def __init__(self, context: Context, limit: int, base: int) -> None:
        super().__init__(context.stream, limit, base, context.owner)
        self.context = context
        self.end = context.end


class ContextPins(PrefixTree):
    """Stands where the prefix tree does: nothing is cached, and locks are those of kept pauses.

    Parameters
    ----------
    free
        Called with a context that nobody needs any more.
    """

    __slots__ = ("_free",)

    def __init__(self, pool: BlockPool, free: Callable[[Context, float], None]) -> None:
        super().__init__(pool)
        self._free = free

    def lock(self, node: Node | None, upto: int, running: bool, now_s: float) -> None:
        """Keep a context."""
        assert isinstance(node, Context)
        node.pinned += 1
        if node.pinned == 1:
            node.held = node.end
            self.keep(node.held, now_s)

    def unlock(self, node: Node | None, upto: int, running: bool, now_s: float) -> None:
        """Undo one `lock`: a context that no one keeps and no turn has taken over is freed."""
        assert isinstance(node, Context)
        node.pinned -= 1
        if node.pinned == 0:
            self.keep(-node.held, now_s)
            self._free(node, now_s)


def common_tokens(stream: Stream, tokens: int, other: Stream, other_tokens: int) -> int:
    """Return how many tokens the first `tokens` of `stream` and the first `other_tokens` of `other` have in common."""
    reach: dict[Stream, int] = {}
    at: Stream | None = other
    while at is not None:
        reach[at] = other_tokens
        other_tokens = min(other_tokens, at.attach)
        at = at.parent
    at = stream
    while at is not None:
        found = reach.get(at)
        if found is not None:
            return min(tokens, found)
        tokens = min(tokens, at.attach)
        at = at.parent
    return 0


def runs(stream: Stream, tokens: int) -> Iterator[tuple[Stream, int, int]]:
    """Yield the runs ``[first, end)`` of streams that make up the first `tokens` tokens of `stream`, last run first."""
    at: Stream | None = stream
    while at is not None:
        if at.attach < tokens:
            yield at, at.attach, tokens
            tokens = at.attach
        at = at.parent
