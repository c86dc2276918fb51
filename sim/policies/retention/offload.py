"""Offload: the paused context moves to a lower tier and comes back at return."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sim.policies.retention.base import DROP, OFFLOAD, RELEASE, Decision, PauseView, RetentionConfig, Sees, TierName


class Offload(RetentionConfig):
    """Move what no one else uses to a lower tier; drop it if there is no room."""

    policy: Literal["offload"] = "offload"
    """Name of the policy."""
    sees: ClassVar[Sees] = "room"
    to: TierName = "dram"
    """The tier it moves to."""
    min_tokens: int = Field(0, ge=0)
    """Contexts with fewer private tokens are released instead."""

    def targets(self) -> tuple[TierName, ...]:
        """Return where contexts may go."""
        return (self.to,)

    def decide(self, pause: PauseView) -> Decision:
        """Return ``offload``, unless the context is short or there is no room."""
        if pause.private_tokens < self.min_tokens:
            return RELEASE
        return OFFLOAD[self.to] if pause.room_in(self.to) else DROP
