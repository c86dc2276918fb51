"""What a wait predictor is told and what it answers."""

from __future__ import annotations

from typing import Protocol


class Predictor(Protocol):
    """The running state of a predictor: one for the whole run."""

    def expect(self, tool: str, true_s: float) -> float:
        """Return the expected wait in seconds; only an oracle looks at `true_s`."""
        ...

    def observe(self, tool: str, wait_s: float) -> None:
        """Learn that a wait for `tool` took `wait_s` seconds."""
        ...
