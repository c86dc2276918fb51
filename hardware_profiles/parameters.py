"""Parameters of a decoder, counted from the shapes of its layers as a Hugging Face `config.json` states them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionShape:
    """Softmax attention: the usual query, key, value and output projections (with `gated`, a second query-sized one).

    With `kv_lora_rank` it is multi-head latent attention, and `head_dim` is the query-key part without rotation.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    gated: bool = False
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    rope_dim: int = 0
    v_head_dim: int = 0

    def params(self) -> int:
        """Return the parameters of one layer's attention."""
        return self._latent() if self.kv_lora_rank else self._grouped()

    def _grouped(self) -> int:
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = query + 2 * key if self.bias else 0
        return self.hidden * (query * (2 if self.gated else 1) + 2 * key) + query * self.hidden + biases

    def _latent(self) -> int:
        query_key = self.heads * (self.head_dim + self.rope_dim)
        if self.q_lora_rank:
            query = self.hidden * self.q_lora_rank + self.q_lora_rank * query_key
        else:
            query = self.hidden * query_key
        down = self.hidden * (self.kv_lora_rank + self.rope_dim)
        up = self.kv_lora_rank * self.heads * (self.head_dim + self.v_head_dim)
        return query + down + up + self.heads * self.v_head_dim * self.hidden


@dataclass(frozen=True)
class LinearShape:
    """Gated delta-rule attention (Qwen3-Next): key x value elements of state a value head, and a short convolution."""

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @property
    def _channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def params(self) -> int:
        """Return the parameters of one layer: q, k, v and gate projections, two scalars a head, convolution, output."""
        value = self.value_heads * self.value_dim
        return (self.hidden * (self._channels + value + 2 * self.value_heads) + self._channels * self.kernel
                + 2 * self.value_heads + self.value_dim + value * self.hidden)

    def state_bytes(self) -> int:
        """Return the bytes one layer keeps a sequence: the recurrent state in 32 bits, the convolution's in 16."""
        recurrent = self.value_heads * self.key_dim * self.value_dim
        return 4 * recurrent + 2 * (self.kernel - 1) * self._channels


def mlp_params(hidden: int, width: int, *, bias: bool = False) -> int:
    """Return the parameters of a gated feed-forward layer: gate, up and down, ``3 h w``."""
    return 3 * hidden * width + (2 * width + hidden if bias else 0)
