"""What all step schedules share: limits, the order of the waiting turns, and what admission reserves."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from sim.policies.base import PolicyConfig

Order = Literal["fcfs", "longest_prefix", "shortest_first", "program_fcfs"]
ORDERS: tuple[Order, ...] = ("fcfs", "longest_prefix", "shortest_first", "program_fcfs")


class WaitingView(NamedTuple):
    """What an order may look at in a waiting turn."""

    ready_s: float
    """Time at which the turn joined the queue."""
    prompt_tokens: int
    """Length of its prompt."""
    hit_tokens: int
    """Prompt tokens its replica's HBM holds now."""


class ScheduleConfig(PolicyConfig):
    """Limits and order common to every schedule."""

    token_budget: int = Field(8192, ge=1)
    """Tokens a step may process: one for every decoding turn, the rest for prompt chunks."""
    max_seqs: int = Field(256, ge=1)
    """Turns a step may hold."""
    order: Order = "fcfs"
    """Order of the waiting turns: first come first served; longest cached prefix first; shortest remaining prompt
    first; or first come first served by the arrival of the turn's trajectory, so that a returning turn keeps its
    place."""
    reserve: Literal["chunk", "prompt", "prompt_and_output"] = "chunk"
    """Blocks that must be free for a turn to be admitted: its next chunk's, its prompt's, or its prompt's and its
    output's (no preemption is ever needed then)."""

    @property
    def dynamic(self) -> bool:
        """Whether a waiting turn's rank depends on the cache and must be looked up again at each admission."""
        return self.order in ("longest_prefix", "shortest_first")

    def rank(self, turn: WaitingView) -> float:
        """Return the rank of a waiting turn in a dynamic order; the lowest is admitted first, ties by arrival."""
        if self.order == "longest_prefix":
            return -float(turn.hit_tokens)
        return float(turn.prompt_tokens - turn.hit_tokens)
