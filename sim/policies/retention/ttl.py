"""TTL: pin a context for as long as the value of a likely return outweighs what the pin costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.policies.retention.base import RELEASE, Decision, PauseView, RetentionConfig

_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class Ttl(RetentionConfig):
    """Pin for ``tau*``, the maximiser of ``P(T <= tau) saved - cost(tau)`` (Continuum, 2025), then release.

    A return within tau saves the time to reload or recompute the context. The pin costs the share of the pool it
    occupies, for at most tau seconds, times the turns that wait for it. `tau` is sought among quantiles of the
    predicted wait. Pair it with the order `program_fcfs`.
    """

    policy: Literal["ttl"] = "ttl"
    """Name of the policy."""
    idle_price: float = Field(0.1, ge=0)
    """Turns that count as waiting when none does: what a pin costs on an idle pool."""

    def decide(self, pause: PauseView) -> Decision:
        """Return ``keep`` for tau*, or ``release`` if no pin is worth its cost."""
        saved_s = pause.back_s()
        price = max(float(pause.waiting), self.idle_price) * pause.private_bytes / pause.pool_bytes
        best, ttl_s = 0.0, 0.0
        for share in _SHARES:
            tau_s = pause.wait.quantile(share)
            gain = pause.wait.cdf(tau_s) * saved_s - price * tau_s
            if gain > best:
                best, ttl_s = gain, tau_s
        return Decision("keep", ttl_s=ttl_s) if ttl_s > 0.0 else RELEASE
