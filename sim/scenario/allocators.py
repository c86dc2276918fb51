"""How the KV pool is divided: the four allocators and their parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sim.analytic import fragmentation
from sim.errors import InputError
from sim.units import Seconds


class AllocatorConfig(BaseModel):
    """What the allocators have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False,
                              defer_build=True)

    @property
    def paged(self) -> bool:
        """Whether a sequence may lie in many places; otherwise it lies in one buffer and nothing is shared."""
        return False

    def resolved(self, context_limit: int) -> Self:
        """Return the configuration with what it takes from the model filled in."""
        return self

    def slots(self, tokens: int, state_slots: int = 0) -> int:
        """Return the slots of a sequence of `tokens` tokens, and of its state, which takes `state_slots`."""
        raise NotImplementedError

    def check(self, slots: int, state_slots: int) -> None:
        """Make sure that a pool of `slots` token slots can be divided in this way.

        Raises
        ------
        InputError
            It cannot.
        """


class Paged(AllocatorConfig):
    """Blocks of `engine.block_size` tokens wherever they are free, with a table a sequence; prefixes are shared."""

    kind: Literal["paged"] = "paged"
    """Name of the allocator."""

    @property
    def paged(self) -> bool:
        """Return True."""
        return True

    def slots(self, tokens: int, state_slots: int = 0) -> int:
        """Return what it holds: whole blocks are the pool's affair."""
        return tokens + state_slots


class Static(AllocatorConfig):
    """One buffer of the largest length there may be for each sequence, at its admission."""

    kind: Literal["static"] = "static"
    """Name of the allocator."""
    s_max: Annotated[int, Field(ge=1)] | None = None
    """Tokens of every buffer; a longer context is turned away. When left out, the model's context limit."""

    def resolved(self, context_limit: int) -> Self:
        """Return the configuration with `s_max` filled in."""
        return self if self.s_max is not None else self.model_copy(update={"s_max": context_limit})

    def slots(self, tokens: int, state_slots: int = 0) -> int:
        """Return those of the largest sequence."""
        return (self.s_max or tokens) + state_slots

    def check(self, slots: int, state_slots: int) -> None:
        """Make sure that there is room for one buffer."""
        if self.slots(0, state_slots) > slots:
            raise InputError(f"a buffer of so many tokens does not fit the KV pool of {slots:,} tokens; give a smaller "
                             "s_max (the model's context limit stands in for one that is left out)",
                             field="engine.allocator.s_max", got=self.s_max)


def _initial(value: Any) -> Any:
    if value == "prompt" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise InputError("expected tokens, 1 or more, or prompt")


class Growth(AllocatorConfig):
    """Contiguous buffers that grow like a vector: a larger one, the tokens copied, the old one freed."""

    kind: Literal["growth"] = "growth"
    """Name of the allocator."""
    factor: float = Field(2.0, ge=1.01, le=1024)
    """Ratio of a buffer to the one before."""
    initial: Annotated[int | Literal["prompt"], BeforeValidator(_initial)] = 1
    """Tokens of the smallest buffer, from which all sizes follow; `prompt`: as many as the turn first asks for."""
    fit: Literal["first", "best"] = "first"
    """Which hole serves a request: the lowest that holds it, or the smallest."""
    malloc_stall: Seconds = Field(1e-3, ge=0)
    """Time that a call into the driver (malloc, free) stops the step loop."""

    def slots(self, tokens: int, state_slots: int = 0) -> int:
        """Return the smallest size of the progression that holds it."""
        whole = tokens + state_slots
        return fragmentation.growth_buffer_tokens(whole, self.initial if isinstance(self.initial, int) else whole,
                                                  self.factor)


class Buddy(AllocatorConfig):
    """Powers of two, split and merged; a sequence that outgrows its block is copied to one twice as large."""

    kind: Literal["buddy"] = "buddy"
    """Name of the allocator."""
    smallest: int = Field(1, ge=1, le=1 << 40)
    """Tokens of the smallest block, a power of two."""

    @model_validator(mode="after")
    def _is_a_power(self) -> Self:
        if self.smallest & (self.smallest - 1):
            raise InputError("must be a power of two", field="smallest", got=self.smallest)
        return self

    def slots(self, tokens: int, state_slots: int = 0) -> int:
        """Return the power of two that holds it."""
        return max(self.smallest, fragmentation.growth_buffer_tokens(tokens + state_slots))

    def check(self, slots: int, state_slots: int) -> None:
        """Make sure that there is room for one block."""
        if self.smallest > slots:
            raise InputError(f"a block of so many tokens does not fit the KV pool of {slots:,} tokens",
                             field="engine.allocator.smallest", got=self.smallest)


Allocator = Annotated[Paged | Static | Growth | Buddy, Field(discriminator="kind")]
