"""What an agent does, as a user writes it: prompt zones, turns, tools, branches and what a harness changes.

A prompt is its zones in order, then the conversation, which grows turn by turn by what is kept of the output and by
the observation of the tool called. How much of it the next turn finds in a cache follows from who shares a zone and
from what changes it; the generator draws that as streams of content.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sim import units
from sim.errors import InputError
from workloads.distributions import CountDistribution, TokenDistribution, WaitDistribution
from workloads.parametric import Constant, Lognormal, Uniform

_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

#: The zone that marks where the conversation goes, if not at the end of the prompt.
CONVERSATION = "conversation"
#: Most turns of a trajectory, and most children of a turn, that 99 of 100 draws may reach.
MOST_DRAWN = 100_000


def _bounded(count: CountDistribution) -> CountDistribution:
    """Refuse counts of which more than one in a hundred is so large that a trajectory would not end."""
    if count.quantile(0.99) > MOST_DRAWN:
        raise InputError(f"99 of 100 draws must be at most {MOST_DRAWN:,}", got=f"{count.quantile(0.99):g}")
    return count


Bounded = Annotated[CountDistribution, AfterValidator(_bounded)]


class Groups(BaseModel):
    """The instances of a zone that a group shares: repositories, customers, projects."""

    model_config = _CONFIG

    count: Annotated[int, Field(ge=1, le=10_000_000)]
    """How many there are."""
    zipf: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)] = 0.0
    """Popularity: the k-th is chosen in proportion to k ** -zipf (0: all alike)."""


class Zone(BaseModel):
    """A part of the prompt in front of the conversation (or behind it, after a zone named `conversation`)."""

    model_config = _CONFIG

    name: Annotated[str, Field(min_length=1)]
    """What it is called in results."""
    tokens: TokenDistribution | None = None
    """Its length: one draw for everyone, a group, or a trajectory, as it is shared."""
    shared: Literal["all", "group", "trajectory", "none"] = "trajectory"
    """Whose content is the same: every trajectory's, a group's, every turn's of one trajectory, or no one's: it is
    new at each turn, and so is, for a cache, everything after it. Shared content behind content that is not shared
    cannot be reused by others either."""
    groups: Groups | None = None
    """The groups, for `shared: group`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name == CONVERSATION:
            if self.tokens is not None:
                raise InputError("the zone `conversation` only marks a place; its tokens come from the turns",
                                 field="tokens")
        elif self.tokens is None:
            raise InputError("is missing", field="tokens")
        if (self.shared == "group") != (self.groups is not None):
            raise InputError("groups: {count: N} goes with shared: group, and only with it", field="groups")
        return self


class Approval(BaseModel):
    """A person who must agree before a tool runs."""

    model_config = _CONFIG

    probability: units.Fraction = 1.0
    """Chance that a call needs it."""
    wait: WaitDistribution
    """Time until the person has agreed; it comes on top of the tool's."""


class Tool(BaseModel):
    """What an agent calls between two turns."""

    model_config = _CONFIG

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """How often it is called, relative to the others."""
    wait: WaitDistribution = Constant(value=0.0)
    """The tool's own time. With the spec's `client` and an approval it makes the gap from the end of the turn until
    the next one is ready; where only the whole gap is known, write that here and leave the other two out."""
    approval: Approval | None = None
    """A person's approval in front of some calls."""
    observation: TokenDistribution | None = None
    """Tokens it adds to the context; None: the spec's `observation`."""
    human: bool = False
    """A person, not a machine: an approval, an answer."""


class Branching(BaseModel):
    """Turns after which several children run at once, and how they come together."""

    model_config = _CONFIG

    probability: units.Fraction = 0.0
    """Chance that a turn (not the last) branches."""
    at: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Turns of the main line (from 0) that branch in any case."""
    children: Bounded = Constant(value=2.0)
    """How many children; 99 of 100 draws are at most 100,000."""
    turns: Bounded = Constant(value=1.0)
    """Turns of each child that goes on from the parent's context; 99 of 100 draws are at most 100,000."""
    task: TokenDistribution = Constant(value=0.0)
    """Tokens appended to the parent's context for each child: what it is asked to do."""
    join: Literal["all", "first", "best", "subagent"] = "all"
    """`all`: the parent waits for all, and their last outputs are appended. `first`: it goes on with the result of
    the first to end, and the others are dropped. `best`: it waits for all and goes on from one child's context.
    `subagent`: it waits for all, and only a `result` of each returns."""
    result: TokenDistribution | None = None
    """Tokens each child returns; None: its last output (nothing for `best`, whose context goes on)."""
    agent: TrajectorySpec | None = None
    """What the children are, if they start from a prompt of their own (a sub-agent); None: they go on from the
    parent's context with the parent's tools."""
    depth: Annotated[int, Field(ge=1, le=10)] = 1
    """Children that go on from the parent's context branch too, up to this depth."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.probability and not self.at:
            raise InputError("give a probability, or the turns `at` which to branch")
        if self.join == "best" and self.agent is not None:
            raise InputError("cannot go on from the context of a child that has a prompt of its own", field="join",
                             got="best")
        return self


class Compaction(BaseModel):
    """The harness replaces the conversation by a summary once the prompt has become too long."""

    model_config = _CONFIG

    at: TokenDistribution
    """Prompt length above which it happens, drawn once a trajectory (users set it, and models differ)."""
    to: CountDistribution = Constant(value=0.25)
    """Length afterwards: a fraction of the prompt if below 1, else tokens; drawn once a trajectory."""
    zone: str | None = None
    """The summary takes the place of everything from this zone on; None: of the conversation only."""

    @model_validator(mode="after")
    def _shrinks(self) -> Self:
        least = float(self.at.quantile(0.0))
        if isinstance(self.at, Constant) and least < 1:
            raise InputError("must be at least 1", field="at", got=least)
        if float(self.to.quantile(0.0)) <= 0 and float(self.to.quantile(1.0)) <= 0:
            raise InputError("must be above 0", field="to", got=float(self.to.quantile(1.0)))
        if isinstance(self.to, Constant) and self.to.value >= 1 and self.to.value >= least:
            raise InputError(f"does not shorten a prompt of {least:g} tokens", field="to", got=self.to.value)
        return self


class ToolListChange(BaseModel):
    """The list of tools changes between turns: that zone and everything after it is new to a cache."""

    model_config = _CONFIG

    zone: str
    """The zone that holds the tools."""
    probability: units.Fraction
    """Chance per turn."""


class UnstableSerialization(BaseModel):
    """Something earlier is written out differently (key order, whitespace), so the cache misses from there on."""

    model_config = _CONFIG

    probability: units.Fraction
    """Chance per turn."""
    kept: CountDistribution = Uniform(low=0.0, high=1.0)
    """Fraction of the conversation in front of the change."""
    zone: str | None = None
    """The change may lie anywhere from this zone on (`kept` is then a fraction of all from there); None: from the
    start of the conversation."""


class TrajectorySpec(BaseModel):
    """One kind of agent. All randomness of a trajectory comes from its own stream, whatever the policies do."""

    model_config = _CONFIG

    description: str = ""
    """What it stands for, and where its numbers come from."""
    prompt: tuple[Zone, ...] = (Zone(name="prompt", tokens=Constant(value=2000.0)),)
    """Zones in order; the conversation follows them (or stands where a zone named `conversation` is)."""
    turns: Bounded = Lognormal(median=20.0, sigma=0.7)
    """Turns of the main line; 99 of 100 draws are at most 100,000."""
    output: TokenDistribution = Lognormal(median=200.0, sigma=0.9)
    """Tokens generated a turn."""
    strip_thinking: units.Fraction = 0.0
    """Fraction of the output that is thinking and is cut from the next prompt. It stood in front of the rest, so the
    rest is computed afresh there."""
    observation: TokenDistribution = Lognormal(median=500.0, sigma=1.2)
    """Tokens a tool adds to the context, for tools that do not say."""
    tools: dict[str, Tool] = Field(default={"tool": Tool(wait=Lognormal(median=2.0, sigma=1.0))}, min_length=1)
    """What is called between turns, drawn by weight."""
    client: WaitDistribution | None = None
    """Time the harness itself takes between a turn and the next (client, proxy, network), on top of a tool's."""
    branching: Branching | None = None
    """Fan-out and sub-agents."""
    compaction: Compaction | None = None
    """Summarising a long conversation."""
    context_limit: Annotated[units.Tokens, Field(ge=2)] | None = None
    """Prompt and output may not exceed this: a trajectory that would ends there. A first prompt that does is cut."""
    tool_list_change: ToolListChange | None = None
    """A tool list that changes."""
    unstable_serialization: UnstableSerialization | None = None
    """Serialisation that is not deterministic."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [zone.name for zone in self.prompt]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError("two zones have the same name", field="prompt", got=twice)
        if not any(zone.tokens is not None for zone in self.prompt):
            raise InputError("needs a zone with tokens", field="prompt")
        front = names[: names.index(CONVERSATION)] if CONVERSATION in names else names
        for name in ("tool_list_change", "unstable_serialization", "compaction"):
            part = getattr(self, name)
            if part is not None and part.zone is not None and part.zone not in front:
                raise InputError("is no zone in front of the conversation", field=f"{name}.zone", got=part.zone)
        if not any(tool.weight for tool in self.tools.values()):
            raise InputError("all weights are 0", field="tools")
        limit, compaction = self.context_limit, self.compaction
        shortest = sum(zone.tokens.quantile(0.0) for zone in self.prompt if zone.tokens is not None)
        if limit is not None and shortest >= limit:
            raise InputError(f"must be above the tokens of a first prompt, which has {shortest:g} or more: every agent "
                             "would end after one turn, with its prompt cut", field="context_limit", got=limit)
        if limit is not None and compaction is not None and compaction.at.quantile(0.0) >= limit:
            raise InputError(f"must be below context_limit {limit}", field="compaction.at",
                             got=float(compaction.at.quantile(0.0)))
        return self


Branching.model_rebuild()
