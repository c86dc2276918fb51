"""Sequences in contiguous buffers: what a running turn holds where nothing is shared.

A turn gets a buffer when it is admitted. Its context may stay in the buffer while its trajectory waits, and the next
turn goes on in it; a branch copies it; a context that left for a lower tier comes back into a new one. No trajectory
finds what another has computed. Blocks of the pool are slots of one token; what a sequence takes whatever its length
(windows, linear states) lies at the head of its buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sim.memory.allocators.base import Growth, Segment
from sim.memory.allocators.paged import BlockPool
from sim.memory.contexts import BufferSequence, Context, ContextPins, common_tokens
from sim.memory.kv_cache import KvCache, PrivatePart, Sequence, mark_seen
from sim.memory.prefix_tree import Node
from workloads.trajectory import Stream

if TYPE_CHECKING:
    from sim.memory.allocators.contiguous import ContiguousAllocator

_Key = TypeVar("_Key", int, Stream)


class BufferCache(KvCache):
    """HBM of one replica, divided into one contiguous buffer a sequence.

    Parameters
    ----------
    allocator
        Where buffers come from.
    state_slots
        Slots a sequence takes besides its tokens'.
    slot_copy_s
        Seconds to copy a slot within HBM (read once, written once).
    stall_s
        Seconds that a call into the driver (malloc, free) stops the step loop.

    Attributes
    ----------
    due_s
        Seconds of copies and stalls that no step has been billed for yet.
    growths, forks, copied, calls
        Buffers that were outgrown and copied, contexts copied for a branch, tokens copied by both, driver calls.
    """

    __slots__ = ("_by_owner", "_by_stream", "_loose", "_next", "allocator", "calls", "copied", "due_s", "forks",
                 "growths", "slot_copy_s", "stall_s", "state_slots")

    def __init__(self, allocator: ContiguousAllocator, *, state_slots: int = 0, slot_copy_s: float = 0.0,
                 stall_s: float = 0.0) -> None:
        pool = BlockPool(allocator.space.total, 1)
        super().__init__(pool, ContextPins(pool, self._free), enabled=False)
        self.allocator = allocator
        self.state_slots = state_slots
        self.slot_copy_s = slot_copy_s
        self.stall_s = stall_s
        self.due_s = 0.0
        self.growths = self.forks = self.copied = self.calls = 0
        #: Contexts that have a buffer, by trajectory and by the stream they end in.
        self._by_owner: dict[int, dict[Context, None]] = {}
        self._by_stream: dict[Stream, dict[Context, None]] = {}
        #: The context of the turn that ended last, until it is known whether a pause keeps it.
        self._loose: Context | None = None
        self._next = 0

    # ---------------------------------------------------------------- what there is

    def fits(self, tokens: int) -> bool:
        """Return whether a sequence of `tokens` tokens would find room in the pool if it were empty."""
        return self.allocator.fits(tokens + self.state_slots)

    def longest(self) -> int:
        """Return the tokens of the longest sequence that `fits`."""
        low, high = 0, self.pool.total + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low

    def match(self, stream: Stream, prompt_tokens: int) -> tuple[Node | None, int]:
        """Return a context that a turn of this stream may go on with, and the tokens it would find; None without one.

        A hint for routing and for orders of the queue; what a turn finds when it is admitted is `source`.
        """
        tokens, at = prompt_tokens - 1, stream
        while tokens > 0:
            for context in self._by_stream.get(at, ()):
                return context, min(tokens, context.tokens)
            tokens = min(tokens, at.attach)
            if at.parent is None:
                break
            at = at.parent
        return None, 0

    def source(self, stream: Stream, tokens: int, owner: int, own: Node | None) -> tuple[Context | None, int]:
        """Return the context that the first `tokens` tokens of `stream` begin with, and how many of them it holds.

        The one kept for the turn (`own`) comes first, else the one of its trajectory that holds most.
        """
        if isinstance(own, Context) and own.alive:
            return own, common_tokens(stream, tokens, own.stream, own.tokens)
        found: Context | None = None
        most = 0
        for context in self._by_owner.get(owner, ()):
            held = common_tokens(stream, tokens, context.stream, context.tokens)
            if held > most:
                found, most = context, held
        return found, most

    def can_open(self, tokens: int, context: Context | None, spare: int) -> bool:
        """Return whether `open` finds a buffer for `tokens` tokens and leaves `spare` slots free.

        `context` is the one whose buffer is taken over, None for a new buffer.
        """
        need = self.allocator.needs(-1 if context is None else context.number, tokens + self.state_slots)
        if need is None or not need:
            return need is not None
        return self.allocator.space.room(need) and self.pool.free - need >= spare

    def room_beside(self, tokens: int) -> int:
        """Return the slots that would be free beside a new buffer for `tokens` tokens; -1 if no hole holds it."""
        need = self.allocator.needs(-1, tokens + self.state_slots)
        return self.pool.free - need if need and self.allocator.space.room(need) else -1

    def can_grow(self, sequence: Sequence, tokens: int) -> bool:
        """Return whether `extend` would do it."""
        assert isinstance(sequence, BufferSequence)
        return self.allocator.can_extend(sequence.context.number, tokens + self.state_slots)

    def room_left(self, sequence: Sequence, tokens: int) -> int:
        """Return the empty slots of a sequence's buffer behind its first `tokens` tokens."""
        assert isinstance(sequence, BufferSequence)
        return sequence.context.end - self.state_slots - tokens

    def segments(self) -> list[Segment]:
        """Return the address space; a buffer's owner is its trajectory."""
        owners = {context.number: owner for owner, mine in self._by_owner.items() for context in mine}
        return [Segment(start, end, use, None if number is None else owners[number])
                for start, end, use, number in self.allocator.segments()]

    # ---------------------------------------------------------------- what is done to it

    def open(self, stream: Stream, limit: int, node: Node | None, matched_tokens: int, now_s: float, owner: int = -1,
             running: bool = True, *, tokens: int = 0, in_place: bool = False) -> BufferSequence:
        """Give a turn a buffer for `tokens` tokens (of its `limit` tokens and one more if left out).

        It begins with `matched_tokens` tokens of the context `node`: where they lie (`in_place`, in a larger buffer if
        need be), or as a copy of them. `running` or not, its buffer is in use.
        """
        wanted = (tokens or limit + 1) + self.state_slots
        kept = matched_tokens + self.state_slots
        if in_place:
            assert isinstance(node, Context)
            context = node
            self._unlist(context)
            context.in_use, context.stream = True, stream
            self.allocator.truncate(context.number, kept)
            self._bill(self.allocator.extend(context.number, wanted))
        else:
            self._next += 1
            context = Context(stream, owner, self._next)
            self._bill(self.allocator.extend(context.number, wanted), matched_tokens)
            self.forks += matched_tokens > 0
        self.allocator.truncate(context.number, kept)
        context.tokens = matched_tokens
        context.end = self.allocator.capacity_tokens(context.number)
        self._by_owner.setdefault(context.owner, {})[context] = None
        self._by_stream.setdefault(stream, {})[context] = None
        return BufferSequence(context, limit, matched_tokens)

    def grow(self, sequence: Sequence, tokens: int, now_s: float) -> None:
        """Nothing: a prompt's room was taken when it was admitted."""

    def extend(self, sequence: Sequence, position: int) -> int:
        """Make room for one token behind the first `position` ones, which exist; return the slots the buffer gained."""
        assert isinstance(sequence, BufferSequence)
        context = sequence.context
        self.wrote(sequence, position)
        self._bill(self.allocator.extend(context.number, position + 1 + self.state_slots))
        self.allocator.truncate(context.number, position + self.state_slots)
        before, context.end = context.end, self.allocator.capacity_tokens(context.number)
        return context.end - before

    def wrote(self, sequence: Sequence, position: int) -> None:
        """The first `position` tokens of a sequence exist now."""
        assert isinstance(sequence, BufferSequence)
        self.allocator.extend(sequence.context.number, position + self.state_slots)

    def commit(self, sequence: Sequence, tokens: int) -> None:
        """Tokens up to `tokens` are computed: branches of the trajectory may copy them."""
        assert isinstance(sequence, BufferSequence)
        self.wrote(sequence, tokens)
        known = min(tokens, sequence.limit)
        sequence.context.tokens = known
        mark_seen(sequence.stream, known)

    def close(self, sequence: Sequence, tokens: int, now_s: float, *, finished: bool = True) -> Node | None:
        """End a sequence of which `tokens` tokens exist; return its context, which `settle` frees if nobody keeps it.

        A sequence that is preempted (`finished` false) gives its buffer back.
        """
        assert isinstance(sequence, BufferSequence)
        context = sequence.context
        known = min(tokens, sequence.limit)
        mark_seen(sequence.stream, known)
        context.in_use = False
        if not finished:
            self._free(context, now_s)
            return None
        self.wrote(sequence, tokens)
        self.allocator.truncate(context.number, known + self.state_slots)
        context.tokens = known
        self.settle(now_s)
        self._loose = context
        return context

    def settle(self, now_s: float) -> None:
        """Free the context of the turn that ended last if no pause has come to keep it."""
        loose, self._loose = self._loose, None
        if loose is not None:
            self._free(loose, now_s)

    def private_part(self, node: Node | None, owner: int = -1) -> PrivatePart:
        """Return the whole context: it is nobody else's."""
        return [(node, 0)] if isinstance(node, Context) and node.alive and not node.in_use else []

    def drop(self, part: PrivatePart, now_s: float) -> int:
        """Free a context now; return its slots."""
        freed = self.pool.free
        for context, _ in part:
            assert isinstance(context, Context)
            self._free(context, now_s)
        return self.pool.free - freed

    def _free(self, context: Context, now_s: float) -> None:
        """Give a context's buffer back, unless it is gone, kept or in use."""
        if not context.alive or context.pinned or context.in_use:
            return
        context.alive = False
        self._bill(self.allocator.free(context.number))
        self._unlist(context)
        if context.pause is not None:
            context.pause.lost(context.end, now_s)

    def _unlist(self, context: Context) -> None:
        _remove(self._by_owner, context.owner, context)
        _remove(self._by_stream, context.stream, context)

    def _bill(self, growth: Growth, copied: int = 0) -> None:
        """Note what a change costs, and how much is free after it."""
        self.pool.free = self.allocator.space.free
        calls = growth.mallocs + growth.frees
        self.growths += growth.transient > 0
        self.copied += growth.copied + copied
        self.calls += calls
        self.due_s += (growth.copied + copied) * self.slot_copy_s + calls * self.stall_s


def _remove(listed: dict[_Key, dict[Context, None]], key: _Key, context: Context) -> None:
    del listed[key][context]
    if not listed[key]:
        del listed[key]
