"""How hard it is to be admitted: for how long the head of the queue has lacked blocks."""

from __future__ import annotations

#: Over how many seconds the pressure on the pool is averaged.
_WINDOW_S = 120.0


class Pressure:
    """Whether the head of a replica's queue lacks blocks, and for how long heads have."""

    __slots__ = ("_before_s", "_mark", "_share", "_since_s", "blocked")

    def __init__(self) -> None:
        self.blocked = False
        self._before_s = self._since_s = 0.0
        self._share = 0.0
        self._mark = (0.0, 0.0)

    def mark(self, blocked: bool, now_s: float) -> None:
        """From now on the head of the queue lacks blocks, or does not."""
        self._before_s, self._since_s = self.blocked_s(now_s), now_s
        self.blocked = blocked

    def blocked_s(self, now_s: float) -> float:
        """Return the seconds so far during which the head of the queue lacked blocks."""
        return self._before_s + now_s - self._since_s if self.blocked else self._before_s

    def share(self, now_s: float) -> float:
        """Return the share of the last minutes during which it did; 1 while it does."""
        total = self.blocked_s(now_s)
        since_s, before = self._mark
        if now_s - since_s > _WINDOW_S:
            self._share = (total - before) / (now_s - since_s)
            self._mark = (now_s, total)
        return max(self._share, 1.0 if self.blocked else 0.0)
