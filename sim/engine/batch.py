"""The decoding turns of a replica, with everything a stretch needs in constant time.

Decoding is predictable: every turn reads one more token a step and takes a block every B steps. So the batch keeps sums
(contexts, turns by offset within a block, unused slots) that advance by k steps at once, and a heap of the steps at
which turns finish; no turn is touched between its first and its last decode step.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.engine.job import Job


class Batch:
    """Decoding turns over a pool with blocks of `block_tokens` tokens.

    Attributes
    ----------
    step
        Decode steps executed so far.
    size
        Turns decoding.
    context
        Sum of their contexts in tokens, as the next step reads them.
    slots
        Unused token slots in their last blocks.
    """

    __slots__ = ("_finishing", "_offsets", "_order", "block_tokens", "context", "size", "slots", "step")

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.step = 0
        self.size = 0
        self.context = 0
        self.slots = 0
        #: Turns by (position - step) mod B when they joined.
        self._offsets = [0] * block_tokens
        self._finishing: list[tuple[int, int, Job]] = []
        self._order = 0

    def join(self, job: Job) -> None:
        """Add a turn whose KV ends at `job.position`."""
        position = job.position
        job.joined_step = self.step
        job.finish_step = self.step + job.turn.output_tokens - job.generated
        self._order += 1
        heappush(self._finishing, (job.finish_step, self._order, job))
        self.size += 1
        self.context += position
        self._offsets[(position - self.step) % self.block_tokens] += 1
        self.slots += -position % self.block_tokens

    def leave(self, job: Job) -> None:
        """Take a turn out, finished or not, and bring its position and count of output tokens up to date."""
        done = self.step - job.joined_step
        start = job.position
        job.position += done
        job.generated += done
        self.size -= 1
        self.context -= job.position
        job.finish_step = -1
        self._offsets[(start - job.joined_step) % self.block_tokens] -= 1
        self.slots -= -job.position % self.block_tokens

    def next_finish(self) -> int:
        """Return the step count at which the next turn finishes."""
        heap = self._finishing
        while heap and heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def pop_finished(self) -> Job | None:
        """Return a turn that has made all its steps and forget when it would finish, or None."""
        heap = self._finishing
        while heap:
            step, _, job = heap[0]
            if job.finish_step != step:
                heappop(heap)
            elif step <= self.step:
                heappop(heap)
                return job
            else:
                return None
        return None

    def blocks_for(self, steps: int) -> int:
        """Return the blocks that the next `steps` steps take.

        Step t gives a block to every turn whose next token starts one: those with offset -t mod B.
        """
        size = self.block_tokens
        cycles, rest = divmod(steps, size)
        need = cycles * self.size
        if rest:
            offsets = self._offsets
            low = -(self.step + rest - 1) % size
            if low + rest <= size:
                need += sum(offsets[low:low + rest])
            else:
                need += sum(offsets[low:]) + sum(offsets[:low + rest - size])
        return need

    def steps_within(self, blocks: int, most: int) -> int:
        """Return the largest number of steps, at most `most`, that take no more than `blocks` blocks."""
        if self.size * -(-most // self.block_tokens) <= blocks or self.blocks_for(most) <= blocks:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.blocks_for(middle) <= blocks:
                low = middle
            else:
                high = middle
        return low

    def advance(self, steps: int) -> int:
        """Execute `steps` steps; return the blocks they took."""
        taken = self.blocks_for(steps)
        self.slots += taken * self.block_tokens - steps * self.size
        self.context += steps * self.size
        self.step += steps
        return taken
