"""What a router sees of a replica."""

from __future__ import annotations

from typing import NamedTuple


class ReplicaView(NamedTuple):
    """A replica as a router sees it when a turn arrives."""

    load: int
    """Turns running or waiting there."""
    match_tokens: int
    """Prompt tokens its prefix cache holds (0 unless the policy asks for it)."""
