"""Step times from what was measured on a GPU, kernel class by kernel class.

A step is the sum of its kernels on one GPU of the replica: the matrix products of a layer at the model's shard,
attention of the decoding turns, attention of each prompt chunk, two all-reduces a layer, the passes over activations
between them (norms, activations: their bytes at the achieved bandwidth, not measured), the output layer on one row a
sequence, and what the engine adds (see `Profile.engine`). Inside the measured range tables are interpolated, beyond it
they grow as a roofline does, and every such look-up is counted (`MeasuredCost.excursions`). Latent attention is
measured as a module with its products; layers with a constant state are a roofline, which is counted too.

With `pp` stages, `pp` micro-batches are in flight: each kernel runs on a share ``1/pp`` of the step's tokens, `pp`
times. Decode steps in a row must be integrable, so for a batch size the step time is the maximum of two lines over the
context; how well they follow the tables is in `MeasuredCost.line_error`. Engines pad a pure decode batch to a captured
size, so its products are those of row counts that are multiples of 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.timing.base import Bound, Chunks, Line
from sim.timing.block_size import REFERENCE, efficiency, source_of
from sim.timing.measured_attention import Attention
from sim.timing.measured_latent import LatentAttention, RooflineLatent, latent
from sim.timing.measured_layers import Linear, all_reduce
from sim.timing.measured_profile import Profile
from sim.timing.measured_tables import Excursions, two_lines
from sim.timing.roofline import Replica

#: Contexts, in tokens a turn, at which the lines of a batch size are laid against the tables.
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class MeasuredCost:
    """The step cost of one replica, from a measured profile.

    Parameters
    ----------
    profile
        Tables of the GPU.
    replica
        Geometry and hardware totals.
    model
        The model: its layers' shapes (a `hardware_profiles.ModelProfile`).
    weights_dtype, kv_dtype
        Formats of weights and KV.
    step_overhead_s
        Added to every step, beside what the profile's engine adds.

    Raises
    ------
    InputError
        The profile has no table of products or of attention in a format or head size the model needs. Latent attention
        that was not measured in the model's shape, and linear-attention layers, are a roofline at the achieved rates
        instead: said in `substitutions`, each use counted in `warnings`.
    """

    def __init__(self, profile: Profile, replica: Replica, model: Any, weights_dtype: str, kv_dtype: str,
                 step_overhead_s: float = 0.0) -> None:
        self.profile = profile
        self.replica = replica
        self.excursions = Excursions()
        #: Batch size -> largest relative error of its lines against the tables.
        self.line_error: dict[int, float] = {}
        #: What stands in for something that was not measured, in words.
        self.substitutions: list[str] = []
        self._layers = float(replica.n_layers)
        self._micro = 1.0 / replica.pp
        said = self.substitutions
        self._attention: Attention | LatentAttention | RooflineLatent = (
            latent(profile, replica, model, weights_dtype, kv_dtype, said) if model.mla
            else Attention(profile, replica, model, kv_dtype, said))
        states = model.linear.layers if model.linear else 0
        unknown = states + (replica.full_layers if isinstance(self._attention, RooflineLatent) else 0)
        self._note_block(said)
        self._linear = Linear(profile, replica, model, weights_dtype, said, unknown)
        self._ring = all_reduce(profile, replica)
        wide = 8.0 * replica.d_model + (3.0 * float(model.d_ff) + 2.0 * replica.d_attn) / replica.tp
        self._activation_bytes = 2.0 * wide * self._layers
        self._Bps = self._attention.Bps
        #: Seconds to read and write the states of one sequence; such layers are not in the tables.
        self._state_s = 2.0 * states * float(model.linear.state_bytes) / replica.tp / self._Bps if states else 0.0
        if states:
            said.append(f"{states} linear-attention layers of {model.name}: not measured, a roofline at the achieved "
                        "rates")
        engine = profile.engine
        self._extra_s = step_overhead_s
        self._step_s = float(engine.get("step_s", 0.0)) + self._layers * float(engine.get("layer_s", 0.0))
        self._sequence_s = float(engine.get("sequence_s", 0.0))
        self._lines: dict[int, tuple[Line, ...]] = {}
        self._fixed: dict[tuple[int, int, bool], float] = {}

    @property
    def band(self) -> dict[str, float]:
        """Median relative error of TTFT and TPOT on measured servers the profile's engine has not seen; may be empty.

        Keys ``ttft`` and ``tpot``; what a summary's figures may be off by because of step times alone.
        """
        tested = self.profile.engine.get("tested", {})
        return {name: float(tested[f"{name}_median"]) for name in ("ttft", "tpot") if f"{name}_median" in tested}

    def warnings(self) -> dict[str, int]:
        """Return the look-ups outside the measured range and all look-ups, of each table that was left."""
        return self.excursions.counts() | self.excursions.asked()

    @property
    def attention_efficiency(self) -> float:
        """Return what the block size leaves of the rate of decode attention; 1 at the profile's own size."""
        return efficiency(self.profile.block_efficiency, self.replica.block_tokens)

    @property
    def ttft_floor_s(self) -> float:
        """Seconds the server in front of the engine adds to every first token (not part of any step)."""
        return float(self.profile.engine.get("ttft_floor_s", 0.0))

    @property
    def error(self) -> Mapping[str, Mapping[str, Any]]:
        """Error of the profile's tables on rows they have not seen, by kernel class."""
        return self.profile.error

    def step(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> float:
        """Return the seconds of a step with `decoding` turns that read `context_tokens`, and prompt `chunks`."""
        if not chunks:
            return max(line[0] + line[1] * context_tokens for line in self.decode_lines(decoding))
        tokens = decoding + sum(new for new, _ in chunks)
        total = self._extra_s + self._fixed_s(tokens, decoding + len(chunks), ragged=True) + self._prefill_s(chunks)
        if decoding:
            self._attention.note(self.excursions, decoding, context_tokens)
            total += self._attention.decode_s(decoding, context_tokens)
        return total

    def decode_lines(self, decoding: int) -> tuple[Line, ...]:
        """Return the lines whose maximum is the step time of `decoding` turns without any prompt chunk."""
        lines = self._lines.get(decoding)
        if lines is None:
            fixed = self._fixed_s(decoding, decoding)
            lines, error = two_lines(lambda total: fixed + self._attention.decode_s(decoding, total),
                                     [float(decoding * each) for each in CONTEXTS])
            lines = tuple(Line(line.base_s + self._extra_s, line.slope_s) for line in lines)
            self._lines[decoding] = lines
            self.line_error[decoding] = error
        return lines

    def bound(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> Bound:
        """Return the term that took most of such a step."""
        terms = self.terms(decoding, context_tokens, chunks)
        if decoding and not chunks:
            self._attention.note(self.excursions, decoding, context_tokens)
            if self._state_s:
                self.excursions.unmeasured("linear_attention")
        return max(terms, key=lambda name: terms[name])

    def terms(self, decoding: int, context_tokens: int, chunks: Chunks = ()) -> dict[Bound, float]:
        """Return the seconds of each term of a step; linear layers count as what binds them."""
        tokens = decoding + sum(new for new, _ in chunks)
        linear = self._linear_s(tokens, decoding + len(chunks), ragged=bool(chunks))
        of_decode, of_chunks = self._attention.products_s(decoding, tokens - decoding)
        linear += of_decode + of_chunks
        compute = self._prefill_s(chunks) - of_chunks
        weights_bind = self._linear.weights_bind(tokens * self._micro)
        kv = self._attention.decode_s(decoding, context_tokens) - of_decode if decoding else 0.0
        kv += self._states_s(decoding + len(chunks))
        return {"compute": compute + (0.0 if weights_bind else linear), "weights": linear if weights_bind else 0.0,
                "kv": kv, "communication": self._collectives_s(tokens),
                "overhead": self._extra_s + self._overhead_s(tokens, decoding + len(chunks))}

    def _note_block(self, said: list[str]) -> None:
        """Say it once when the block size is not among the measured ones."""
        table, block = self.profile.block_efficiency, self.replica.block_tokens
        if block and table:
            self.excursions.note("attention_by_block", block, table["blocks"][0], table["blocks"][-1])
        elif self.attention_efficiency != 1.0:
            self.excursions.note("attention_by_block", block, REFERENCE, REFERENCE)
        else:
            return
        source = source_of(table, block)
        if source != "measured":
            said.append(f"decode attention with blocks of {block}: {self.attention_efficiency:.0%} of the rate with "
                        f"blocks of {REFERENCE} ({source})")

    def _fixed_s(self, tokens: int, sequences: int, *, ragged: bool = False) -> float:
        """Return what does not depend on contexts: products, collectives, passes over activations, the engine."""
        key = (tokens, sequences, ragged)
        value = self._fixed.get(key)
        if value is None:
            value = self._fixed[key] = (self._linear_s(tokens, sequences, ragged=ragged)
                                        + self._collectives_s(tokens) + self._overhead_s(tokens, sequences)
                                        + self._states_s(sequences))
        if self._state_s:
            self.excursions.unmeasured("linear_attention")
        micro = tokens * self._micro
        self.excursions.note("linear", micro, self._linear.low, self._linear.high)
        return value

    def _linear_s(self, tokens: int, sequences: int, *, ragged: bool) -> float:
        linear = self._linear
        return linear.layers_s(tokens * self._micro, ragged=ragged) + linear.output_s(sequences * self._micro)

    def _overhead_s(self, tokens: int, sequences: int) -> float:
        return self._step_s + self._sequence_s * sequences + tokens * self._micro * self._activation_bytes / self._Bps

    def _collectives_s(self, tokens: int) -> float:
        replica = self.replica
        message = tokens * self._micro * replica.d_model * 2.0
        total = 0.0
        if self._ring is not None:
            self.excursions.note("all_reduce", message, self._ring.low, self._ring.high)
            total += 2.0 * self._layers * self._ring(message)
        if replica.pp > 1:
            total += replica.pp * (1e-5 + message / replica.nvlink_Bps)
        return total

    def _states_s(self, sequences: int) -> float:
        return self._state_s * sequences * self._micro

    def _prefill_s(self, chunks: Chunks) -> float:
        return self._attention.chunks_s(chunks, self.excursions) if chunks else 0.0
