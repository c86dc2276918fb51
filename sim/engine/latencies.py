"""Step times, and the gaps between a stream's tokens: the step loop appends a row a stretch.

Rows become histograms, many at once, when a window ends. Windows can be cut apart afterwards: so a warm-up is left out.
"""

from __future__ import annotations

from sim.engine.histograms import Buckets, Histograms, Row
from sim.timing.base import Line, at

#: Rows kept before they are folded into the histogram.
_MOST_ROWS = 1 << 15


class Latencies:
    """Step times and token gaps of one replica.

    Every step adds its length once, and once more for each stream that decodes in it.
    """

    __slots__ = ("_histograms", "_marks", "_rows", "_stalls", "add", "ends")

    def __init__(self) -> None:
        #: Ends of the windows closed so far, in seconds.
        self.ends: list[float] = []
        self._rows: list[Row] = []
        #: Takes one row: ``(first_s, last_s, count, steps, gaps)``.
        self.add = self._rows.append
        #: Prompts that ran alone since the last decode step: streams that stood still, seconds.
        self._stalls: list[tuple[int, float]] = []
        #: Rows there were when each of the last windows was closed.
        self._marks: list[int] = []
        #: Of the windows before.
        self._histograms = Histograms()

    def stretch(self, lines: tuple[Line, ...], context: int, streams: int, steps: int) -> None:
        """Add `steps` decode steps of so many streams, the first of which reads `context` tokens."""
        if self._stalls:
            first_s = at(lines, context)
            self._resume(first_s, streams)
            self.add((first_s, first_s, 1, 1, 0))
            if steps == 1:
                return
            steps, context = steps - 1, context + streams
        last = context + streams * (steps - 1)
        if len(lines) == 1:
            base_s, slope_s = lines[0]
            self.add((base_s + slope_s * context, base_s + slope_s * last, steps, 1, streams))
        else:
            self.add((at(lines, context), at(lines, last), steps, 1, streams))

    def prompts(self, seconds: float, streams: int, *, decoding: bool) -> None:
        """Add a step with prompt chunks, in which so many streams decoded too or stood still."""
        self.add((seconds, seconds, 1, 1, streams if decoding else 0))
        if streams and not decoding:
            self._stalls.append((streams, seconds))

    def _resume(self, step_s: float, streams: int) -> None:
        """Book the gaps of the first decode step after prompts that ran alone: a stream waited since it joined."""
        gap_s = step_s + sum(seconds for _, seconds in self._stalls)
        booked = 0
        for still, seconds in self._stalls:
            if min(still, streams) > booked:
                self.add((gap_s, gap_s, 1, 0, min(still, streams) - booked))
                booked = min(still, streams)
            gap_s -= seconds
        self.add((step_s, step_s, 1, 0, streams - booked))
        self._stalls.clear()

    def close_window(self, now_s: float) -> None:
        """End the current window at `now_s`."""
        self.ends.append(now_s)
        self._marks.append(len(self._rows))
        if len(self._rows) > _MOST_ROWS:
            self._fold()

    def halve(self) -> None:
        """Join neighbouring windows, so that a long run keeps a bounded number of them."""
        if len(self._marks) == len(self.ends):  # none has been folded yet
            self._marks = self._marks[1::2] + self._marks[len(self._marks) & ~1:]
        else:
            self._fold()
            self._histograms.halve()
        self.ends = self.ends[1::2] + self.ends[len(self.ends) & ~1:]

    def token_gaps(self) -> list[tuple[float, Buckets]]:
        """Return the windows of gaps between tokens: (end, {bucket: (weight, seconds)})."""
        self._fold()
        return list(zip(self.ends, self._histograms.gaps(len(self.ends)), strict=True))

    def step_times(self) -> list[tuple[float, Buckets]]:
        """Return the windows of step times: (end, {bucket: (weight, seconds)})."""
        self._fold()
        return list(zip(self.ends, self._histograms.steps(len(self.ends)), strict=True))

    def _fold(self) -> None:
        """Move the rows of closed windows into the histograms."""
        if not self._marks:
            return
        count = self._marks[-1]
        if count:
            self._histograms.fold(self._rows[:count], self._marks, len(self.ends))
        self._marks.clear()
        del self._rows[:count]
