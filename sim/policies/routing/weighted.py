"""Several scores a replica, each with a weight of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.policies.base import PolicyConfig
from sim.policies.routing.base import ReplicasView

Weight = Annotated[float, Field(ge=0, le=1e6)]


class Weighted(PolicyConfig):
    """The highest weighted sum of scores between 0 and 1 wins; equals take turns.

    The scores are those of llm-d (llm-d/llm-d-router, `pkg/epp/framework/plugins/scheduling/scorer`): ``queue-scorer``
    (`queuedepth/queue.go`, commit 683100d), ``active-request-scorer`` (`activerequest/active_request.go`, 2b0e757),
    ``kv-cache-utilization-scorer`` (`kvcacheutilization/kvcache_utilization.go`, 2342697) and ``prefix-cache-scorer``
    (`prefix/plugin.go`, 068b68d). Default weights are those of the chart `inferencepool` of the Gateway API inference
    extension since November 2025 (its pull request 1827).
    """

    policy: Literal["weighted"] = "weighted"
    """Name of the policy."""
    waiting: Weight = 2.0
    """Weight of few waiting turns: ``(most - n) / (most - least)``, 1 where all have as many."""
    turns: Weight = 0.0
    """Weight of few turns, running or waiting: ``(most - n) / most``, 1 where there are none."""
    kv_use: Weight = 2.0
    """Weight of a free pool: 1 less the share that turns and kept pauses hold; cached and idle counts as free."""
    prefix: Weight = 3.0
    """Weight of the share of the prompt that the replica has."""
    host_prefix: Weight = 0.0
    """Weight of the share of the prompt that the replica has in HBM or below."""
    knows: Literal["sent", "held"] = "sent"
    """What a replica has: `sent`, the beginnings of the prompts that the router sent there last, whether they are still
    there or not; `held`, what is there."""
    remembers: int = Field(500_000, ge=1)
    """Tokens of prompts a replica that `prefix` remembers as sent; llm-d's 31,250 blocks of 16."""
    host_remembers: int = Field(500_000, ge=1)
    """The same for `host_prefix`."""
    head: int = Field(4096, ge=1)
    """Tokens at the beginning of a prompt that are remembered and compared; llm-d's 256 blocks of 16."""

    def choose(self, replicas: ReplicasView, previous: int | None, turn: int, prompt_tokens: int) -> int:
        """Return the index of the replica with the highest sum."""
        sums = [0.0] * len(replicas)
        for weight, scores in self._scores(replicas, prompt_tokens):
            sums = [total + weight * score for total, score in zip(sums, scores, strict=True)]
        best = max(sums)
        equals = [index for index, total in enumerate(sums) if total == best]
        return equals[turn % len(equals)]

    def _scores(self, replicas: ReplicasView, prompt_tokens: int) -> list[tuple[float, list[float]]]:
        """Return the weights above 0, and what each replica scores under them."""
        found: list[tuple[float, list[float]]] = []
        if self.waiting:
            counts = replicas.waiting()
            most, least = max(counts), min(counts)
            found.append((self.waiting, [(most - n) / (most - least) if most > least else 1.0 for n in counts]))
        if self.turns:
            counts = replicas.loads()
            most = max(counts)
            found.append((self.turns, [(most - n) / most if most else 1.0 for n in counts]))
        if self.kv_use:
            found.append((self.kv_use, [1.0 - share for share in replicas.kv_use()]))
        head = min(self.head, prompt_tokens) if self.knows == "sent" else prompt_tokens
        if self.prefix:
            has = replicas.sent(self.remembers, head) if self.knows == "sent" else replicas.matches()
            found.append((self.prefix, [tokens / head for tokens in has]))
        if self.host_prefix:
            has = replicas.sent(self.host_remembers, head) if self.knows == "sent" else replicas.host_matches()
            found.append((self.host_prefix, [tokens / head for tokens in has]))
        return found
