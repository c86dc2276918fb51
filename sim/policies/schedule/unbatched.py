"""No batching: one turn at a time, from its first prompt token to its last output token."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.schedule.base import ScheduleConfig


class Unbatched(ScheduleConfig):
    """One turn at a time; the baseline every batching engine is measured against."""

    policy: Literal["unbatched"] = "unbatched"
    """Name of the policy."""
    decodes_with_prefill: ClassVar[bool] = False
    #: Whether decoding goes on in a step that holds prompt chunks.

    def prefill_room(self, decoding: int, prefilling: int) -> int:
        """Return the prompt tokens the next step may process: a whole prompt, whatever its length."""
        return 1 << 60

    def admits(self, decoding: int, prefilling: int) -> bool:
        """Return whether a waiting turn may be admitted: only when nothing else runs."""
        return decoding + prefilling == 0
