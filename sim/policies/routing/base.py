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

    def alive(self) -> list[int]:
        """Return the trajectories alive whose last turn each replica served."""
        ...

    def matches(self) -> list[int]:
        """Return the prompt tokens that each replica's prefix cache holds."""
        ...
