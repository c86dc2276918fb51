"""What a router sees of the replicas."""

from __future__ import annotations

from typing import Protocol


class ReplicasView(Protocol):
    """The replicas when a turn arrives; a router looks up only what it needs."""

    def __len__(self) -> int:
        """Return the number of replicas."""
        ...

    def loads(self) -> list[int]:
        """Return each replica's turns, running or waiting."""
        ...

    def waiting(self) -> list[int]:
        """Return each replica's turns that are not admitted yet, or whose context is being loaded."""
        ...

    def kv_use(self) -> list[float]:
        """Return the share of each replica's pool that turns and kept pauses hold."""
        ...

    def alive(self) -> list[int]:
        """Return the trajectories alive whose last turn each replica served."""
        ...

    def matches(self) -> list[int]:
        """Return the prompt tokens that each replica's prefix cache holds."""
        ...

    def host_matches(self) -> list[int]:
        """Return the prompt tokens that each replica's prefix cache and the tiers below it hold."""
        ...

    def sent(self, capacity: int, head: int) -> list[int]:
        """Return how many of the prompt's first `head` tokens (at most all) were sent to each replica before.

        So many tokens a replica are remembered (`capacity`), those sent last.
        """
        ...
