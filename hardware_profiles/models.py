"""A model as far as memory and time depend on it: its geometry, not its weights."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hardware_profiles.dtypes import DTYPE_BYTES
from sim.analytic import sizing


def _whole(value: Any) -> Any:
    """Read text such as ``70.6e9``, which YAML 1.1 leaves as text, as the whole number it is."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole), Field(gt=0)]
CountOrZero = Annotated[int, BeforeValidator(_whole), Field(ge=0)]


class _Profile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Moe(_Profile):
    """A mixture of experts: a router sends every token to `top_k` of `experts` feed-forward networks."""

    experts: Count
    """Routed experts a layer, E."""
    top_k: Count
    """Routed experts a token uses in a layer, k."""
    layers: Count
    """Layers that have experts."""
    expert_params: Count
    """Parameters of one routed expert in one layer. Shared experts count among the dense parameters."""

    @model_validator(mode="after")
    def _possible(self) -> Moe:
        if self.top_k > self.experts:
            raise ValueError(f"top_k must not exceed experts ({self.experts})")
        return self


class Mla(_Profile):
    """Multi-head latent attention: the cache keeps one latent and one rotary key a layer, whatever the heads."""

    kv_lora_rank: Count
    """Elements of the latent vector."""
    rope_dim: CountOrZero
    """Elements of the shared rotary key."""


class Sliding(_Profile):
    """Layers whose attention sees only the last `window` tokens."""

    layers: Count
    """How many layers are of this kind."""
    window: Count
    """Tokens such a layer keeps."""


class Linear(_Profile):
    """Linear-attention or state-space layers: a state of constant size a sequence, whatever its length."""

    layers: Count
    """How many layers are of this kind."""
    state_bytes: Count
    """Bytes of state one such layer keeps for one sequence."""


class ModelProfile(_Profile):
    """Geometry of a decoder.

    Layers that are neither sliding nor linear have full attention. Multi-head latent attention applies to all
    attention layers if `mla` is given.
    """

    name: str = "inline"
    """What the model is called."""
    n_params: Count
    """All parameters."""
    n_active_params: CountOrZero = 0
    """Parameters a token passes through; 0 works it out from `moe` (all of them without)."""
    n_layers: Count
    """Decoder layers, L."""
    n_heads: Count
    """Query heads a layer."""
    n_kv_heads: Count
    """Key-value heads a layer, H_kv (ignored with `mla`)."""
    head_dim: Count
    """Elements of a head, d."""
    d_model: CountOrZero = 0
    """Width of the hidden state; 0 stands for n_heads * head_dim."""
    d_ff: CountOrZero = 0
    """Width of the feed-forward layer, of all experts a token uses together; 0 stands for 4 d_model."""
    vocab: CountOrZero = 0
    """Entries of the vocabulary; 0 leaves the logits out of the activations."""
    context_limit: Count = 131_072
    """Longest context the model takes, in tokens."""
    moe: Moe | None = None
    """Mixture of experts, if it is one."""
    mla: Mla | None = None
    """Multi-head latent attention, if it has it."""
    sliding: Sliding | None = None
    """Layers with a sliding window, if any."""
    linear: Linear | None = None
    """Layers with a constant state, if any."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each figure was read, by field."""

    @model_validator(mode="after")
    def _fill(self) -> ModelProfile:
        """Put what stands for it in place of a 0."""
        width = self.d_model or self.d_attn
        derived = {"d_model": width, "d_ff": self.d_ff or 4 * width, "n_active_params": self.n_active_params}
        if self.n_active_params == 0:
            used = self.moe.top_k * self.moe.layers * self.moe.expert_params if self.moe else 0
            derived["n_active_params"] = self.dense_params + used
        for field, value in derived.items():
            object.__setattr__(self, field, value)
        return self

    @model_validator(mode="after")
    def _consistent(self) -> ModelProfile:
        if self.full_layers < 0:
            raise ValueError(f"sliding and linear layers must not exceed n_layers ({self.n_layers})")
        if self.moe and self.moe.layers > self.n_layers:
            raise ValueError(f"moe.layers must not exceed n_layers ({self.n_layers})")
        if self.routed_params > self.n_params:
            raise ValueError(f"the experts have {self.routed_params} parameters, more than n_params ({self.n_params})")
        if self.n_active_params > self.n_params:
            raise ValueError(f"n_active_params must not exceed n_params ({self.n_params})")
        return self

    @property
    def full_layers(self) -> int:
        """Layers with full attention."""
        return (self.n_layers - (self.sliding.layers if self.sliding else 0)
                - (self.linear.layers if self.linear else 0))

    @property
    def d_attn(self) -> int:
        """Width of attention, n_heads * head_dim: what its FLOP are proportional to."""
        return self.n_heads * self.head_dim

    @property
    def routed_params(self) -> int:
        """Parameters of all routed experts."""
        return self.moe.experts * self.moe.layers * self.moe.expert_params if self.moe else 0

    @property
    def dense_params(self) -> int:
        """Parameters every token passes through (embeddings, attention, shared experts)."""
        return self.n_params - self.routed_params

    def layer_bytes_per_token(self, dtype: str) -> float:
        """Return the KV bytes a token takes in one attention layer, over all its heads, at `dtype`."""
        if self.mla:
            return sizing.mla_bytes_per_token(1, self.mla.kv_lora_rank, self.mla.rope_dim, DTYPE_BYTES[dtype])
        return sizing.kv_bytes_per_token(1, self.n_kv_heads, self.head_dim, DTYPE_BYTES[dtype])

    def kv_bytes_per_token(self, dtype: str) -> float:
        """Return the bytes each further token of a long context takes: those of the full-attention layers.

        ``2 L_full H_kv d b``, with latent attention ``L_full (kv_lora_rank + rope_dim) b``. Sliding windows and
        linear states do not grow; `state_bytes` has them.
        """
        return self.full_layers * self.layer_bytes_per_token(dtype)

    def state_bytes(self, dtype: str, tp: int = 1) -> int:
        """Return the bytes a sequence takes besides its growing part: full sliding windows and linear states.

        Over the `tp` GPUs of a group together: windows are copied like other KV (`kv_copies`), states are divided.
        """
        windows = self.sliding.layers * self.sliding.window * self.layer_bytes_per_token(dtype) if self.sliding else 0
        states = self.linear.layers * self.linear.state_bytes if self.linear else 0
        return math.ceil(windows * self.kv_copies(tp) + states)

    def kv_bytes(self, tokens: int, dtype: str, tp: int = 1) -> float:
        """Return the bytes a context of `tokens` tokens takes, each sliding layer holding at most its window.

        Over the `tp` GPUs of a group together, as `state_bytes` has it.
        """
        if tokens <= 0:
            return 0.0
        total = tokens * self.kv_bytes_per_token(dtype)
        if self.sliding:
            held = sizing.windowed_tokens(tokens, self.sliding.window)
            total += self.sliding.layers * held * self.layer_bytes_per_token(dtype)
        states = self.linear.layers * self.linear.state_bytes if self.linear else 0
        return total * self.kv_copies(tp) + states

    def weight_bytes(self, dtype: str) -> float:
        """Return the bytes of all weights at `dtype` (every parameter in that format)."""
        return sizing.weight_bytes(self.n_params, DTYPE_BYTES[dtype])

    def experts_touched(self, tokens: float) -> float:
        """Return the expected distinct experts a layer that `tokens` tokens use; 0 without experts."""
        return sizing.experts_touched(self.moe.experts, self.moe.top_k, tokens) if self.moe else 0.0

    def step_weight_bytes(self, tokens: float, dtype: str) -> float:
        """Return the weight bytes a step of `tokens` tokens reads: the dense ones and the experts touched."""
        routed = self.experts_touched(tokens) * self.moe.layers * self.moe.expert_params if self.moe else 0.0
        return (self.dense_params + routed) * DTYPE_BYTES[dtype]

    def kv_copies(self, tp: int) -> float:
        """Return how often the GPUs of a tensor-parallel group together hold each KV byte.

        1 while the KV heads can be divided; ``tp/n_kv_heads`` when there are more GPUs than heads; `tp` with latent
        attention, whose latent every GPU needs whole. (Engines that run attention data-parallel avoid the copies; such
        a layout is described as `tp` 1 for the attention and is not modelled.)
        """
        return float(tp) if self.mla else sizing.kv_head_copies(self.n_kv_heads, tp)
