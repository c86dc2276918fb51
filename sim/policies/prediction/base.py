"""What a wait predictor is told and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Wait(Protocol):
    """A prediction: the distribution of a wait, in seconds."""

    def mean(self) -> float:
        """Return the expected wait."""
        ...

    def quantile(self, share: float) -> float:
        """Return the wait that so large a share of waits does not exceed."""
        ...

    def cdf(self, seconds: float) -> float:
        """Return the share of waits that do not exceed `seconds`."""
        ...


class Point(NamedTuple):
    """A wait that is taken for certain."""

    seconds: float

    def mean(self) -> float:
        """Return the wait."""
        return self.seconds

    def quantile(self, share: float) -> float:
        """Return the wait, whatever the share."""
        return self.seconds

    def cdf(self, seconds: float) -> float:
        """Return 1 from the wait on, 0 before."""
        return 1.0 if seconds >= self.seconds else 0.0


class Predictor(Protocol):
    """The running state of a predictor: one for the whole run."""

    def predict(self, tool: str, true_s: float) -> Wait:
        """Return the distribution of a wait for `tool`; only an oracle looks at `true_s`."""
        ...

    def observe(self, tool: str, wait_s: float) -> None:
        """Learn that a wait for `tool` took `wait_s` seconds."""
        ...


#: The workload's own distribution for each tool, where it states one.
Declared = Mapping[str, Wait]
