"""The prompt zones of an agent laid out as streams: what is shared, with whom, and where a change cuts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workloads.distributions import TokenDistribution
from workloads.parametric import zipf_cumulative
from workloads.spec import CONVERSATION, TrajectorySpec, Zone
from workloads.trajectory import Stream, trunk

_MOST = 1_000_000_000  # tokens; a heavy tail without `max` must not overflow anything


def whole(distribution: TokenDistribution, rng: np.random.Generator, n: int, least: int) -> list[int]:
    """Draw `n` whole numbers of at least `least`."""
    drawn = distribution.sample(rng, n).tolist()
    return [least if tokens < least else round(tokens) if tokens < _MOST else _MOST for tokens in drawn]


def attached(stream: Stream, position: int, label: str) -> Stream:
    """Return a new stream that shares the first `position` tokens of `stream` (a root if that is none)."""
    return Stream(trunk(stream, position), position, label) if position else Stream(None, 0, label)


@dataclass(slots=True)
class Layout:
    """One trajectory's prompt: where its zones lie, and the stream that holds them.

    `stream` carries the zones and then the conversation, which starts at `conversation` (tokens). Every turn has
    fresh content from `volatile` on, if that is not None. `tail` tokens follow the conversation anew at each turn.
    """

    stream: Stream
    starts: dict[str, int]
    conversation: int
    volatile: int | None
    volatile_label: str
    tail: int
    tail_label: str
    group: str
    picks: dict[str, int] = field(default_factory=dict)


class Prompt:
    """Lays out prompts for the trajectories of one run; content shared by all or by a group exists once.

    Parameters
    ----------
    spec
        The agent.
    entropy
        Numbers that the shared lengths are drawn from: (seed, replication, position of the agent in its spec).
    """

    def __init__(self, spec: TrajectorySpec, entropy: tuple[int, ...]) -> None:
        names = [zone.name for zone in spec.prompt]
        cut = names.index(CONVERSATION) if CONVERSATION in names else len(names)
        self._front, self._tail = spec.prompt[:cut], spec.prompt[cut + 1:]
        self._entropy = entropy
        self._lengths: dict[tuple[int, int], int] = {}
        self._shared: dict[tuple[tuple[int, int], ...], Stream] = {}
        self._popularity = {zone.name: zipf_cumulative(zone.groups.count, zone.groups.zipf)
                            for zone in spec.prompt if zone.groups is not None}

    def lay_out(self, rng: np.random.Generator, picks: dict[str, int] | None = None) -> Layout:
        """Draw a trajectory's groups and lengths, and return its layout.

        `picks` are the groups its parent chose: a sub-agent works in the same repository as its parent.
        """
        chosen = dict(picks or {})
        for name, cumulative in self._popularity.items():
            if name not in chosen:
                chosen[name] = int(np.searchsorted(cumulative, rng.random(), side="right"))
        starts: dict[str, int] = {}
        position, chain, shared = 0, (), None  # type: int, tuple[tuple[int, int], ...], Stream | None
        private, volatile, volatile_label = "", None, ""
        for index, zone in enumerate(self._front):
            starts[zone.name] = position
            tokens = self._length(index, zone, chosen, rng)
            if zone.shared == "none" and volatile is None and tokens:
                volatile, volatile_label = position, zone.name
            if zone.shared in ("all", "group") and not private:
                chain = (*chain, (index, chosen.get(zone.name, 0)))
                shared = self._zone_stream(chain, shared, position, zone, chosen)
            else:
                private = private or zone.name
            position += tokens
        conversation = position
        shared_end = starts[private] if private else conversation
        stream = Stream(shared, shared_end, "conversation") if shared is not None and shared_end else \
            Stream(None, 0, "conversation")
        tail = sum(self._length(len(self._front) + 1 + index, zone, chosen, rng)
                   for index, zone in enumerate(self._tail))
        group = next((f"{name}/{pick}" for name, pick in chosen.items() if name in self._popularity), "")
        return Layout(stream, starts, conversation, volatile, volatile_label, tail,
                      self._tail[0].name if self._tail else "", group, chosen)

    def _length(self, index: int, zone: Zone, chosen: dict[str, int], rng: np.random.Generator) -> int:
        """Return a zone's tokens: drawn once for all or for the group, else for this trajectory."""
        assert zone.tokens is not None
        if zone.shared not in ("all", "group"):
            return whole(zone.tokens, rng, 1, 0)[0]
        key = (index, chosen.get(zone.name, 0))
        if key not in self._lengths:
            own = np.random.SeedSequence(self._entropy[0], spawn_key=(*self._entropy[1:], *key))
            self._lengths[key] = whole(zone.tokens, np.random.Generator(np.random.SFC64(own)), 1, 0)[0]
        return self._lengths[key]

    def _zone_stream(self, chain: tuple[tuple[int, int], ...], parent: Stream | None, position: int, zone: Zone,
                     chosen: dict[str, int]) -> Stream:
        stream = self._shared.get(chain)
        if stream is None:
            label = zone.name if zone.shared == "all" else f"{zone.name}/{chosen[zone.name]}"
            stream = Stream(parent, position, label) if parent is not None and position else Stream(None, 0, label)
            self._shared[chain] = stream
        return stream
