"""What a retention policy sees at a pause, what it may answer, and the options all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sim.policies.base import PolicyConfig
from sim.policies.prediction import Learned, Prediction

Action = Literal["keep", "release", "drop", "offload"]


@dataclass(slots=True)
class PauseView:
    """A pause, as a policy sees it. Read-only.

    Attributes
    ----------
    tool
        What the trajectory waits for.
    private_tokens, private_bytes
        Context that no other turn or trajectory uses, and its bytes over all GPUs of the replica: what can be moved
        or dropped.
    context_tokens
        The whole context.
    expected_wait_s
        The predictor's mean of the wait, in seconds.
    recompute_s
        Time to compute the private tokens again on an idle replica.
    reload_s
        Time to bring the private bytes back from DRAM, with the queue in front of the link as it is now.
    offload_s
        Time to move them out, likewise.
    free_fraction
        Share of the pool that is free or dormant.
    waiting
        Turns queued for blocks or budget.
    dram_free_bytes
        Room in the DRAM tier, counting what its own eviction could free; 0 without a tier.
    """

    tool: str
    private_tokens: int
    private_bytes: float
    context_tokens: int
    expected_wait_s: float
    recompute_s: float
    reload_s: float
    offload_s: float
    free_fraction: float
    waiting: int
    dram_free_bytes: float


class RetentionConfig(PolicyConfig):
    """Options common to every retention policy."""

    predictor: Prediction = Learned()
    """How the length of a wait is predicted, for policies that ask."""
    needs_prediction: ClassVar[bool] = False
