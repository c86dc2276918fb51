"""Step times from datasheet figures and stated efficiencies.

Modes
-----
``max``
    ``max(FLOP / (peak MFU), bytes / (bandwidth MBU))`` over the whole step.
``sum``
    The same kernel class by kernel class (linear layers, attention of decoding turns, attention of prompt chunks), each
    its own maximum, plus collectives.

Both add a fixed overhead to every step.

FLOP: ``2 N_active T`` for the linear layers, ``4 L d_attn c (p + c/2)`` for causal attention of c new tokens on p past
ones, layers with a sliding window seeing at most their window. Bytes: the weights once a step (of a mixture of experts
those of the experts that T tokens touch), the KV of the decoding contexts and of each chunk's past.

Tensor parallelism adds two ring all-reduces a layer. A pipeline of `pp` stages keeps `pp` micro-batches in flight, so
arithmetic and KV run at the rate of all its GPUs, but every stage reads its weights once a micro-batch: `pp` times a
step in all; each hand-over costs a latency and the activations' bytes.

KV in small blocks is read at a lower rate (`block_size.ASSUMED`), as if there were more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sim.timing.base import Bound, Chunks, Line
from sim.timing.block_size import efficiency


@dataclass(frozen=True, slots=True)
class Replica:
    """What a step's time depends on, for all GPUs of a replica together.

    `peak_flops` and `hbm_Bps` are datasheet totals; `nvlink_Bps` is one GPU's; `weight_read_bytes(T)` are the weight
    bytes a step of T tokens reads. `block_tokens` are those of a KV block; 0 for contiguous buffers.
    """

    active_params: float
    weight_read_bytes: Callable[[float], float]
    full_layers: int
    window_layers: int
    window: int
    d_attn: int
    d_model: int
    n_layers: int
    kv_bytes_per_token: float
    state_bytes: float
    peak_flops: float
    hbm_Bps: float
    nvlink_Bps: float
    tp: int = 1
    pp: int = 1
    block_tokens: int = 0


class RooflineCost:
    """The step cost of one replica.

    Parameters
    ----------
    replica
        Geometry and hardware totals.
    mode
        ``max`` or ``sum``, see the module.
    mfu, mbu
        Shares of peak arithmetic and of peak bandwidth that are reached, in (0, 1].
    step_overhead_s
        Added to every step.
    collective_latency_s
        Start-up time of one all-reduce or hand-over (mode ``sum``).

    Raises
    ------
    ValueError
        If an efficiency is not in (0, 1].
    """

    def __init__(self, replica: Replica, mode: Literal["max", "sum"] = "sum", mfu: float = 0.5, mbu: float = 0.8,
                 step_overhead_s: float = 0.0, collective_latency_s: float = 5e-6) -> None:
        if not (0 < mfu <= 1 and 0 < mbu <= 1):
            raise ValueError(f"mfu and mbu must be in (0, 1] (got {mfu}, {mbu})")
        self.replica = replica
        self.mode = mode
        self._flops = replica.peak_flops * mfu
        self._Bps = replica.hbm_Bps * mbu
        self._overhead_s = step_overhead_s
        self._latency_s = collective_latency_s
        self._attn_flop = 4.0 * replica.full_layers * replica.d_attn
        self._window_flop = 4.0 * replica.window_layers * replica.d_attn
        #: Bytes of KV a token, as many as would take as long if they lay in one piece.
        self._kv_bytes = replica.kv_bytes_per_token / self.attention_efficiency
        self._decode_slope_s = max(self._attn_flop / self._flops, self._kv_bytes / self._Bps)
        self._flop_per_token = 2.0 * replica.active_params
        reads_alike = replica.weight_read_bytes(1) == replica.weight_read_bytes(1 << 20)
        #: Seconds a step takes to read the weights, where that does not depend on its tokens (no experts).
        self._weights_s = replica.pp * replica.weight_read_bytes(1) / self._Bps if reads_alike else None
        self._kv_s = self._kv_bytes / self._Bps
        self._collective_s, self._collective_token_s = self._collectives()
        self._lines: dict[int, tuple[Line, ...]] = {}

    def decode_lines(self, decoding: int) -> tuple[Line, ...]:
        """Return the lines whose maximum is the step time of `decoding` turns without any prompt chunk."""
        lines = self._lines.get(decoding)
        if lines is None:
            lines = self._lines[decoding] = self._make_lines(decoding)
        return lines

    def step(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> float:
        """Return the seconds of a step with `decoding` turns that read `context_tokens`, and prompt `chunks`."""
        if not chunks:
            lines = self.decode_lines(decoding)
            return max(line[0] + line[1] * context_tokens for line in lines)
        if self.mode == "max":
            flop, read = self._totals(decoding, context_tokens, chunks)
            return max(flop / self._flops, read / self._Bps) + self._overhead_s
        tokens = decoding
        attention_s = 0.0
        for new, past in chunks:
            tokens += new
            flop_s = self._chunk_flop(new, past) / self._flops
            read_s = self._kv_s * past
            attention_s += flop_s if flop_s > read_s else read_s
        return (self._linear_s(tokens) + self._decode_attention_s(decoding, context_tokens) + attention_s
                + self._collective_s + self._collective_token_s * tokens + self._overhead_s)

    def bound(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> Bound:
        """Return the term that took most of such a step."""
        tokens = decoding + sum(new for new, _ in chunks)
        weights = self._weight_read_s(tokens)
        flop, read = self._totals(decoding, context_tokens, chunks)
        compute, total_read = flop / self._flops, read / self._Bps
        terms: dict[Bound, float] = {
            "compute": compute if compute >= total_read or self.mode == "sum" else 0.0,
            "weights": weights if compute < total_read or self.mode == "sum" else 0.0,
            "kv": total_read - weights if compute < total_read or self.mode == "sum" else 0.0,
            "communication": self._collectives_s(tokens) if self.mode == "sum" else 0.0,
            "overhead": self._overhead_s,
        }
        return max(terms, key=lambda name: terms[name])

    def warnings(self) -> dict[str, int]:
        """Return nothing: a roofline has no measured range to leave."""
        return {}

    @property
    def attention_efficiency(self) -> float:
        """Return the rate of KV reads with the replica's block size over that with large blocks."""
        return efficiency({}, self.replica.block_tokens)

    @property
    def ttft_floor_s(self) -> float:
        """Return 0: nothing stands in front of the engine."""
        return 0.0

    @property
    def band(self) -> dict[str, float]:
        """Return nothing: the efficiencies are stated, not fitted."""
        return {}

    def _make_lines(self, decoding: int) -> tuple[Line, ...]:
        replica = self.replica
        if self.mode == "max":
            compute = Line((2.0 * replica.active_params * decoding
                            + self._window_flop * decoding * replica.window) / self._flops + self._overhead_s,
                           self._attn_flop / self._flops)
            memory = Line((replica.pp * replica.weight_read_bytes(decoding) + decoding * replica.state_bytes)
                          / self._Bps + self._overhead_s, self._kv_s)
            return (compute, memory)
        base = (self._linear_s(decoding) + self._decode_attention_s(decoding, 0) + self._collectives_s(decoding)
                + self._overhead_s)
        return (Line(base, self._decode_slope_s),)

    def _totals(self, decoding: int, context: int, chunks: Chunks) -> tuple[float, float]:
        """Return FLOP and bytes of a whole step."""
        replica = self.replica
        tokens = decoding + sum(new for new, _ in chunks)
        flop = 2.0 * replica.active_params * tokens + self._attn_flop * context
        flop += self._window_flop * decoding * replica.window
        read = self._weight_read_s(tokens) * self._Bps + self._kv_bytes * context
        read += decoding * replica.state_bytes
        for new, past in chunks:
            flop += self._chunk_flop(new, past)
            read += self._kv_bytes * past
        return flop, read

    def _chunk_flop(self, new: int, past: int) -> float:
        seen = past + new / 2.0
        flop = self._attn_flop * seen
        if self._window_flop:
            flop += self._window_flop * min(seen, self.replica.window)
        return new * flop

    def _linear_s(self, tokens: int) -> float:
        flop_s = self._flop_per_token * tokens / self._flops
        read_s = self._weight_read_s(tokens) if self._weights_s is None else self._weights_s
        return flop_s if flop_s > read_s else read_s

    def _weight_read_s(self, tokens: int) -> float:
        """Return the seconds in which a step of so many tokens reads the weights."""
        if self._weights_s is not None:
            return self._weights_s
        return self.replica.pp * self.replica.weight_read_bytes(tokens) / self._Bps

    def _decode_attention_s(self, decoding: int, context: int) -> float:
        return self._decode_slope_s * context + decoding * self.replica.state_bytes / self._Bps

    def _collectives_s(self, tokens: int) -> float:
        return self._collective_s + self._collective_token_s * tokens

    def _collectives(self) -> tuple[float, float]:
        """Return the seconds that a step's collectives take: always, and for each token."""
        replica = self.replica
        fixed = each = 0.0
        hand_over_s = replica.d_model * 2.0 / replica.nvlink_Bps
        if replica.tp > 1:
            fixed += 2.0 * replica.n_layers * self._latency_s
            each += 2.0 * replica.n_layers * 2.0 * (replica.tp - 1) / replica.tp * hand_over_s
        if replica.pp > 1:
            fixed += replica.pp * self._latency_s
            each += hand_over_s
        return fixed, each
