"""The decoding turns of a replica, with everything a stretch needs in constant time.

Decoding is predictable: every turn reads one more token a step and takes a block every B steps. So the batch keeps sums
(contexts, turns by offset within a block, unused slots) that advance by k steps at once, and a heap of the steps at
which turns finish; no turn is touched between its first and its last decode step.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.engine.job import Job

#: Later than any step.
NEVER = 1 << 62


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

    __slots__ = ("_finishing", "_offsets", "_order", "block_tokens", "context", "next_step", "size", "slots",
                 "step")

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.step = 0
        self.size = 0
        self.context = 0
        self.slots = 0
        #: Step count at which the next turn finishes.
        self.next_step = NEVER
        #: Turns by (position - step) mod B when they joined, twice over, so that any B in a row are a slice.
        self._offsets = [0] * (2 * block_tokens)
        self._finishing: list[tuple[int, int, Job]] = []
        self._order = 0

    def join(self, job: Job) -> None:
        """Add a turn whose KV ends at `job.position`."""
        position, step, size = job.position, self.step, self.block_tokens
        job.joined_step = step
        finish = job.finish_step = step + job.turn.output_tokens - job.generated
        self._order += 1
        heappush(self._finishing, (finish, self._order, job))
        if finish < self.next_step:
            self.next_step = finish
        self.size += 1
        self.context += position
        self._count((position - step) % size, 1)
        self.slots += -position % size

    def leave(self, job: Job) -> None:
        """Take a turn out, finished or not, and bring its position and count of output tokens up to date."""
        done = self.step - job.joined_step
        start = job.position
        job.position += done
        job.generated += done
        self.size -= 1
        self.context -= job.position
        finish, job.finish_step = job.finish_step, -1
        if finish == self.next_step:
            self._find_next()
        size = self.block_tokens
        self._count((start - job.joined_step) % size, -1)
        self.slots -= -job.position % size

    def pop_finished(self) -> Job:
        """Take out a turn that has made all its steps; there must be one (``next_step <= step``)."""
        job = self._finishing[0][2]
        self.leave(job)
        return job

    def _find_next(self) -> None:
        """Forget turns that have left and look up when the next one finishes."""
        heap = self._finishing
        while heap and heap[0][2].finish_step != heap[0][0]:
            heappop(heap)
        self.next_step = heap[0][0] if heap else NEVER

    def blocks_for(self, steps: int) -> int:
        """Return the blocks that the next `steps` steps take.

        Step t gives a block to every turn whose next token starts one: those with offset -t mod B.
        """
        size = self.block_tokens
        if steps == 1:
            return self._offsets[-self.step % size]
        cycles, rest = divmod(steps, size)
        low = -(self.step + rest - 1) % size
        return cycles * self.size + sum(self._offsets[low:low + rest])

    def steps_within(self, blocks: int, most: int) -> int:
        """Return the largest number of steps, at most `most` and at least 1, that take no more than `blocks` blocks.

        The caller has made sure that there are blocks for one step.
        """
        if self.size * -(-most // self.block_tokens) <= blocks or self.blocks_for(most) <= blocks:
            return most
        low, high = 1, most
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
        tokens = steps * self.size
        self.slots += taken * self.block_tokens - tokens
        self.context += tokens
        self.step += steps
        return taken

    def _count(self, offset: int, change: int) -> None:
        self._offsets[offset] += change
        self._offsets[offset + self.block_tokens] += change
