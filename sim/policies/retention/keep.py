"""Keep: the paused context stays pinned in HBM."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from sim.policies.retention.base import Decision, PauseView, RetentionConfig, Sees
from sim.units import Seconds


class Keep(RetentionConfig):
    """Pin the context until the trajectory returns; given up only when running turns find no block."""

    policy: Literal["keep"] = "keep"
    """Name of the policy."""
    ttl: Seconds | None = Field(None, ge=0)
    """Release the context after this time; None keeps it for good."""
    sees: ClassVar[Sees] = "nothing"

    def decide(self, pause: PauseView) -> Decision:
        """Return ``keep``, always."""
        return Decision("keep", ttl_s=math.inf if self.ttl is None else self.ttl)
