"""Chunked prefill: every step decodes, and fills the rest of its budget with prompt chunks."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.schedule.base import ScheduleConfig


class Chunked(ScheduleConfig):
    """Decodes first, then the prefills in progress, then waiting turns, up to `token_budget`.

    Sarathi-Serve (OSDI 2024); the default of vLLM V1 and SGLang.
    """

    policy: Literal["chunked"] = "chunked"
    """Name of the policy."""

    def prefill_room(self, decoding: int, prefilling: int) -> int:
        """Return the prompt tokens the next step may process next to `decoding` turns."""
        return max(0, self.token_budget - decoding)

    def admits(self, decoding: int, prefilling: int) -> bool:
        """Return whether a waiting turn may join a step that holds so many turns."""
        return decoding + prefilling < self.max_seqs

    decodes_with_prefill: ClassVar[bool] = True
    #: Whether decoding goes on in a step that holds prompt chunks.
