"""The random numbers of one line of turns, all drawn at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.prompt import whole

if TYPE_CHECKING:
    from workloads.generator import Agent


class Draws:
    """The random numbers of one line of turns, as lists, drawn in one go; item i of a call stands before turn i."""

    __slots__ = ("branches", "human", "observed", "output", "reserialized", "tool", "tools_changed", "wait")

    def __init__(self, agent: Agent, rng: np.random.Generator, n: int, may_branch: bool) -> None:
        spec = agent.spec
        self.output = whole(spec.output, rng, n, 1)
        limit = spec.context_limit
        if limit is not None:
            self.output = [min(tokens, limit - 1) for tokens in self.output]
        self.observed, self.tool, self.wait, self.human = agent.calls(rng, n)
        self.tools_changed = _happens(spec.tool_list_change.probability if spec.tool_list_change else 0.0, rng, n)
        unstable = spec.unstable_serialization
        turns = _happens(unstable.probability if unstable else 0.0, rng, n)
        self.reserialized: dict[int, float] = {}
        if unstable is not None and turns:
            fractions = np.clip(unstable.kept.sample(rng, len(turns)), 0.0, 1.0).tolist()
            self.reserialized = dict(zip(sorted(turns), fractions, strict=True))
        self.branches: set[int] = set()
        if may_branch and spec.branching is not None:
            self.branches = _happens(spec.branching.probability, rng, n)


def _happens(probability: float, rng: np.random.Generator, n: int) -> set[int]:
    """Return the turns of 0..n-1 at which something with this probability happens."""
    return set(np.flatnonzero(rng.random(n) < probability).tolist()) if probability else set()
