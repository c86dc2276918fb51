"""Offload: the paused context moves to host DRAM and comes back at return."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.retention.base import Action, PauseView, RetentionConfig


class Offload(RetentionConfig):
    """Move what no one else uses to DRAM; drop it if there is no room."""

    policy: Literal["offload"] = "offload"
    """Name of the policy."""
    min_tokens: int = Field(0, ge=0)
    """Contexts with fewer private tokens are released instead."""

    def decide(self, pause: PauseView) -> Action:
        """Return ``offload``, unless the context is short or there is no room."""
        if pause.private_tokens < self.min_tokens:
            return "release"
        return "offload" if pause.private_bytes <= pause.dram_free_bytes else "drop"
