"""What an eviction policy may look at in a dormant cache entry."""

from __future__ import annotations

from typing import NamedTuple


class EntryView(NamedTuple):
    """A dormant leaf of the prefix cache."""

    last_use_s: float
    """When it, or anything that grew out of it, was last used."""
    uses: int
    """How often it has been used."""
    first_token: int
    """Position of its first token in the contexts it belongs to."""
    end_token: int
    """Position behind its last token."""
    shared: bool
    """Whether more than one stream has grown out of it."""
