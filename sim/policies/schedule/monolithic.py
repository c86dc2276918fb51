"""Monolithic prefill: a waiting prompt runs whole and alone while every decoding turn stalls."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.schedule.base import ScheduleConfig


class Monolithic(ScheduleConfig):
    """A waiting prompt runs in one step of its own; decodes stall until it is done (Orca-style engines)."""

    policy: Literal["monolithic"] = "monolithic"
    """Name of the policy."""
    decodes_with_prefill: ClassVar[bool] = False
    #: Whether decoding goes on in a step that holds prompt chunks.

    def prefill_room(self, decoding: int, prefilling: int) -> int:
        """Return the prompt tokens the next step may process: a whole prompt, whatever its length."""
        return 1 << 60

    def admits(self, decoding: int, prefilling: int) -> bool:
        """Return whether a waiting turn may be admitted: only when no other prompt is in the step."""
        return prefilling == 0 and decoding < self.max_seqs
