"""Paused contexts in contiguous buffers: they leave HBM whole, and come back into a buffer of their own.

A context's tokens go out as one copy, and its buffer is free when that has ended. Below HBM each trajectory has its
own.
"""

from __future__ import annotations

from sim.engine.pause import Pause
from sim.engine.pauses import Pauses
from sim.engine.prefetches import Prefetches
from sim.memory.buffer_cache import BufferCache
from sim.memory.contexts import BufferSequence, runs
from sim.memory.kv_cache import PrivatePart, Sequence
from sim.memory.prefix_tree import Node
from sim.memory.tiers import Piece
from workloads.trajectory import Stream


class BufferPauses(Pauses):
    """The paused contexts of a replica with contiguous buffers; parameters as for `Pauses`."""

    def _prefetching(self) -> Prefetches:
        assert isinstance(self.kv, BufferCache)
        return BufferPrefetches(self, self.kv)

    def _whole(self, part: PrivatePart) -> list[Piece]:
        """Return the tokens of a context by stream, its trajectory's own: what is empty in its buffer stays."""
        pieces = [(self.host.place(stream, node.owner), first, end, False)
                  for node, _ in part for stream, first, end in runs(node.stream, node.tokens)]
        return pieces[::-1]

    def _moved(self, pause: Pause) -> int:
        return pause.node.tokens if pause.node is not None else 0


class BufferPrefetches(Prefetches):
    """Copies back into buffers of their own, in which the next turns go on."""

    def __init__(self, pauses: Pauses, buffers: BufferCache) -> None:
        super().__init__(pauses)
        self.buffers = buffers

    def _match(self, pause: Pause) -> tuple[Node | None, int]:
        """Return nothing: the context comes back whole."""
        return None, 0

    def _room(self, stream: Stream, limit: int, node: Node | None, hit: int, blocks: int) -> int:
        """Return the slots that would be free beside a buffer for the context; fewer than none if there is no hole."""
        return self.buffers.room_beside(limit + 1)

    def _claim(self, pause: Pause, limit: int, node: Node | None, hit: int, now_s: float) -> Sequence:
        """Return a buffer of its own for a context on its way back."""
        return self.buffers.open(pause.turn.stream, limit, node, hit, now_s, pause.trajectory)

    def _keep(self, pause: Pause, sequence: Sequence, tokens: int, now_s: float) -> list[Node]:
        """The context is back: pin its buffer."""
        self.buffers.commit(sequence, tokens)
        pause.node = self.buffers.close(sequence, tokens, now_s)
        self.pauses.pin(pause, now_s)
        return [] if pause.node is None else [pause.node]

    def _held(self, sequence: Sequence, blocks: int) -> int:
        """Return the slots of the whole buffer."""
        assert isinstance(sequence, BufferSequence)
        return sequence.context.end

    def _fetched(self, pause: Pause) -> None:
        super()._fetched(pause)
        self.buffers.settle(self.pauses.env.now)
        self.pauses.replica.blocks_freed()
