"""Prefill first: prompts run in steps of their own, as many as the budget holds, while decoding turns stall."""

from __future__ import annotations

from typing import ClassVar, Literal

from sim.policies.schedule.base import ScheduleConfig


class PrefillFirst(ScheduleConfig):
    """Waiting prompts are batched into steps without decodes, in chunks of the budget, before decoding goes on.

    The default of SGLang (`enable_mixed_chunk` off) and of vLLM before chunked prefill.
    """

    policy: Literal["prefill_first"] = "prefill_first"
    """Name of the policy."""
    decodes_with_prefill: ClassVar[bool] = False
    #: Whether decoding goes on in a step that holds prompt chunks.

    def prefill_room(self, decoding: int, prefilling: int) -> int:
        """Return the prompt tokens the next step may process."""
        return self.token_budget

    def admits(self, decoding: int, prefilling: int) -> bool:
        """Return whether a waiting turn may be admitted."""
        return decoding + prefilling < self.max_seqs
