"""Attention of a model on one GPU of a replica, from the tables of a measured profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from sim.errors import InputError
from sim.timing.base import Chunks
from sim.timing.block_size import efficiency
from sim.timing.measured_profile import SAME_KERNELS, Profile
from sim.timing.measured_tables import DecodeTable, Excursions, PrefillTable
from sim.timing.roofline import Replica


class Attention:
    """Attention of all layers on one GPU."""

    def __init__(self, profile: Profile, replica: Replica, model: Any, dtype: str, said: list[str]) -> None:
        kernels = SAME_KERNELS.get(dtype, dtype)
        tp = replica.tp
        shape = (model.n_heads // tp, max(1, model.n_kv_heads // tp), model.head_dim)
        decode, heads_scale = _attention_entry(profile.decode_attention, profile, shape, kernels, said, kv=True)
        prefill, flop_scale = _attention_entry(profile.prefill_attention, profile, shape, kernels, said, kv=False)
        token_bytes = float(2 * shape[1] * shape[2] * (1 if kernels == "fp8" else 2))
        group = tp * replica.pp
        self.Bps = float(profile.fit.get("decode_attention", {}).get("Bps") or 0.8 * replica.hbm_Bps / group)
        self.decode = DecodeTable(decode["rows"], token_bytes / heads_scale / self.Bps,
                                  1.0 / efficiency(profile.block_efficiency, replica.block_tokens))
        self.prefill = PrefillTable(prefill["new"], prefill["past"], prefill["us"])
        self._heads_scale, self._flop_scale = heads_scale, flop_scale
        self._full, self._windows = float(replica.full_layers), float(replica.window_layers)
        self._window = replica.window
        self._token_bytes = token_bytes
        self._pp = replica.pp

    def decode_s(self, decoding: float, context: float) -> float:
        """Return the seconds of attention of `decoding` turns whose contexts sum to `context`."""
        batch, tokens = decoding / self._pp, context / self._pp
        floor = self.decode(batch, 0.0)
        total = self._full * (floor + (self.decode(batch, tokens) - floor) * self._heads_scale)
        if self._windows:
            seen = min(tokens, batch * self._window)
            total += self._windows * (floor + (self.decode(batch, seen) - floor) * self._heads_scale)
        return total

    def note(self, excursions: Excursions, decoding: float, context: float) -> None:
        """Count a look-up of decode attention."""
        excursions.note("decode_attention", context / self._pp, 0.0, self.decode.reach(decoding / self._pp))

    def products_s(self, decoding: float, new: float) -> tuple[float, float]:
        """Return the seconds of products within decode attention and within that of chunks: none."""
        return 0.0, 0.0

    def chunks_s(self, chunks: Chunks, excursions: Excursions) -> float:
        """Return the seconds of attention of a step's chunks: they are added up."""
        return sum(self._chunk_s(new, past, excursions) for new, past in chunks)

    def _chunk_s(self, new: int, past: int, excursions: Excursions) -> float:
        table = self.prefill
        length = table.equal(new, past) if len(table.past) == 1 else float(new)
        excursions.note("prefill_attention", length, 0.0, table.curves[0].high)
        if past and len(table.past) == 1:
            excursions.note("prefill_on_cached_past", past, 0.0, table.past[-1] or 1.0)
        total = self._full * max(table(new, past) * self._flop_scale, past * self._token_bytes / self.Bps)
        if self._windows:
            total += self._windows * table(new, min(past, self._window)) * self._flop_scale
        return total / self._pp


def _attention_entry(entries: Sequence[Mapping[str, Any]], profile: Profile, shape: tuple[int, int, int], dtype: str,
                     said: list[str], *, kv: bool) -> tuple[Mapping[str, Any], float]:
    """Return the table of a shape, or of the nearest with the factor its work is to be scaled by."""
    same = [entry for entry in entries if entry["head_dim"] == shape[2] and entry["kv_dtype"] == dtype]
    if not same:
        have = sorted({f"head_dim {entry['head_dim']} in {entry['kv_dtype']}" for entry in entries})
        raise InputError(f"{profile.name} has attention of {', '.join(have) or 'no shape'} only", field="kv_dtype",
                         got=f"head_dim {shape[2]} in {dtype}")
    heads, kv_heads, _ = shape
    # What attention moves goes with the KV heads, what it computes with the query heads.
    near = min(same, key=lambda entry: abs(log(entry["kv_heads"] / kv_heads)) * (4.0 if kv else 0.25)
               + abs(log(entry["heads"] / heads)))
    if (near["heads"], near["kv_heads"]) == (heads, kv_heads):
        return near, 1.0
    kind = "decode" if kv else "prefill"
    said.append(f"{kind} attention of {heads} heads on {kv_heads}: scaled from {near['heads']} on {near['kv_heads']}")
    return near, kv_heads / near["kv_heads"] if kv else heads / near["heads"]
