"""The decoding turns of a replica with contiguous buffers, and when each of them needs a larger one."""

from __future__ import annotations

from heapq import heappop, heappush

from sim.engine.batch import NEVER, Batch
from sim.engine.job import Job
from sim.memory.buffer_cache import BufferCache


class BufferBatch(Batch):
    """Decoding turns, and when the next of them will have filled its buffer.

    Attributes
    ----------
    slots
        Empty slots of the buffers of all running turns, those in prefill too: behind the context of a decoding turn,
        behind the whole prompt of a turn in prefill.
    next_growth
        Step count at which a turn must have a larger buffer to go on.
    """

    __slots__ = ("_full", "_order_of_growth", "_steps", "kv", "next_growth")

    def __init__(self, kv: BufferCache) -> None:
        super().__init__(1)
        self.kv = kv
        self.next_growth = NEVER
        self._full: list[tuple[int, int, Job]] = []
        self._steps: dict[Job, int] = {}
        self._order_of_growth = 0

    def join(self, job: Job) -> None:
        """Add a turn whose KV ends at `job.position`."""
        super().join(job)
        self.watch(job)

    def leave(self, job: Job) -> None:
        """Take a turn out, finished or not, and bring its position and count of output tokens up to date."""
        super().leave(job)
        self.slots -= self.kv.room_left(job.sequence, job.position)
        if self._steps.pop(job, None) is not None:
            self._find_next_growth()

    def watch(self, job: Job) -> None:
        """Note the step at which a turn's buffer is full, if it does not finish before."""
        step = job.joined_step + self.kv.room_left(job.sequence, job.position)
        if step < job.finish_step:
            self._order_of_growth += 1
            self._steps[job] = step
            heappush(self._full, (step, self._order_of_growth, job))
            self.next_growth = min(self.next_growth, step)

    def first_full(self) -> Job:
        """Return the turn whose buffer is full at `next_growth`."""
        return self._full[0][2]

    def position(self, job: Job) -> int:
        """Return the tokens of a decoding turn that exist now."""
        return job.position + self.step - job.joined_step

    def grown(self, job: Job, slots: int) -> None:
        """The turn `first_full` has a buffer that is `slots` slots larger."""
        self.slots += slots
        del self._steps[job]
        self._find_next_growth()
        self.watch(job)

    def blocks_for(self, steps: int) -> int:
        """Return 0: no step takes memory, what precedes it does."""
        return 0

    def steps_within(self, blocks: int, most: int) -> int:
        """Return the steps until a buffer is full, at most `most`."""
        return min(most, self.next_growth - self.step)

    def advance(self, steps: int) -> int:
        """Execute `steps` steps; they take no memory."""
        tokens = steps * self.size
        self.context += tokens
        self.slots -= tokens
        self.step += steps
        return 0

    def _find_next_growth(self) -> None:
        full, steps = self._full, self._steps
        while full and steps.get(full[0][2]) != full[0][0]:
            heappop(full)
        self.next_growth = full[0][0] if full else NEVER
