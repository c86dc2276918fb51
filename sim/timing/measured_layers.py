"""Kernels of a model on one GPU of a replica, put together from the tables of a measured profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from sim.errors import InputError
from sim.timing.measured_profile import SAME_KERNELS, Profile
from sim.timing.measured_tables import Curve, DecodeTable, Excursions, PrefillTable, Ramp
from sim.timing.roofline import Replica


class Linear:
    """Matrix products of one layer on one GPU against tokens, all layers together, and the output layer."""

    def __init__(self, profile: Profile, replica: Replica, model: Any, dtype: str, said: list[str]) -> None:
        kernels = SAME_KERNELS.get(dtype, dtype)
        if kernels not in profile.linear:
            raise InputError(f"{profile.name} has matrix products in {', '.join(profile.linear)} only",
                             field="weights_dtype", got=dtype)
        table = profile.linear[kernels]
        tp, d = replica.tp, replica.d_model
        kv_heads = max(1, model.n_kv_heads // tp)
        qkv = (model.n_heads // tp + 2 * kv_heads) * model.head_dim
        attention = [(qkv, d), (d, replica.d_attn // tp)]
        dense = [(2 * model.d_ff // tp, d), (d, max(1, model.d_ff // tp))]
        moe_layers = model.moe.layers if model.moe else 0
        whole = float(replica.n_layers)
        shapes = [(shape, whole) for shape in attention]
        shapes += [(shape, whole - moe_layers) for shape in dense if whole > moe_layers]
        self._even = _sum_of(table, shapes, "", said)
        self._ragged = _sum_of(table, shapes, "_ragged", said)
        head = profile.linear.get("bf16", table)
        self._output = _sum_of(head, [((max(1, model.vocab // tp), d), 1.0)], "", said) if model.vocab else None
        self._experts = _experts(profile, replica, model, kernels, said) if model.moe else None
        self._moe_layers = float(moe_layers)
        self.low, self.high = self._even.low, self._even.high
        fit = profile.fit.get(f"linear/{kernels}", {})
        group = tp * replica.pp
        self._flops = float(fit.get("flops") or 0.6 * replica.peak_flops / group)
        self._Bps = float(fit.get("Bps") or 0.8 * replica.hbm_Bps / group)
        self._active, self._read = replica.active_params, replica.weight_read_bytes

    def layers_s(self, tokens: float, *, ragged: bool = False) -> float:
        """Return the seconds of all layers' products for `tokens` rows; `ragged` if they are not padded."""
        curve = self._ragged if ragged and tokens > 16 and tokens % 16 else self._even
        total = curve(tokens)
        if self._experts is not None:
            total += self._moe_layers * self._experts(tokens)
        return total

    def output_s(self, rows: float) -> float:
        """Return the seconds of the output layer for so many rows (16-bit, one row a sequence)."""
        return self._output(rows) if self._output is not None else 0.0

    def weights_bind(self, tokens: float) -> bool:
        """Return whether reading the weights takes longer than multiplying them, at the achieved rates."""
        return self._read(tokens) / self._Bps >= 2.0 * self._active * tokens / self._flops


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
        self.decode = DecodeTable(decode["rows"], token_bytes / heads_scale / self.Bps)
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

    def prefill_s(self, new: int, past: int, excursions: Excursions) -> float:
        """Return the seconds of attention of one chunk."""
        table = self.prefill
        length = table.equal(new, past) if len(table.past) == 1 else float(new)
        excursions.note("prefill_attention", length, 0.0, table.curves[0].high)
        if past and len(table.past) == 1:
            excursions.note("prefill_on_cached_past", past, 0.0, table.past[-1] or 1.0)
        total = self._full * max(table(new, past) * self._flop_scale, past * self._token_bytes / self.Bps)
        if self._windows:
            total += self._windows * table(new, min(past, self._window)) * self._flop_scale
        return total / self._pp


def _sum_of(table: Mapping[str, Any], shapes: Sequence[tuple[tuple[int, int], float]], kind: str,
            said: list[str]) -> Curve:
    """Return the sum of products over tokens, each (n, k) as often as given."""
    if not table.get(f"tokens{kind}"):
        kind = ""
    tokens, rows = table[f"tokens{kind}"], table[f"us{kind}"]
    known = {tuple(shape): row for shape, row in zip(table["shapes"], rows, strict=True)}
    total = [0.0] * len(tokens)
    for shape, times in shapes:
        for index, us in enumerate(product(known, shape, said)):
            total[index] += us * times * 1e-6
    return Curve(tokens, total)


def product(known: Mapping[Any, Sequence[float]], shape: tuple[int, int], said: list[str]) -> Sequence[float]:
    """Return the times of one product over tokens: measured, or log-bilinear between measured (n, k)."""
    if shape in known:
        return known[shape]
    corners = _corners(known, shape)
    if corners is None:
        near = min(known, key=lambda other: abs(log(other[0] / shape[0])) + abs(log(other[1] / shape[1])))
        scale = shape[0] * shape[1] / (near[0] * near[1])
        text = f"product {shape[0]} x {shape[1]}: scaled from {near[0]} x {near[1]}"
        if text not in said:
            said.append(text)
        return [us * scale for us in known[near]]
    mixed: list[float] = []
    for index in range(len(known[corners[0][0]])):
        value = 1.0
        for corner, weight in corners:
            value *= known[corner][index] ** weight
        mixed.append(value)
    return mixed


def _corners(known: Mapping[Any, Any], shape: tuple[int, int]) -> list[tuple[tuple[int, int], float]] | None:
    """Return the four measured shapes around one, with their weights in log space; None outside the grid."""
    sides = []
    for axis in (0, 1):
        values = sorted({pair[axis] for pair in known})
        below = [value for value in values if value <= shape[axis]]
        above = [value for value in values if value >= shape[axis]]
        if not below or not above:
            return None
        low, high = below[-1], above[0]
        share = 0.0 if low == high else log(shape[axis] / low) / log(high / low)
        sides.append([(low, 1.0 - share), (high, share)] if share else [(low, 1.0)])
    corners = [((n, k), a * b) for n, a in sides[0] for k, b in sides[1]]
    return corners if all(corner in known for corner, _ in corners) else None


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


def all_reduce(profile: Profile, replica: Replica) -> Ramp | None:
    """Return the seconds of an all-reduce of one replica's GPUs over its bytes; None for a single GPU."""
    if replica.tp == 1:
        return None
    for entry in profile.all_reduce:
        if entry["gpus"] == replica.tp:
            sizes, seconds = entry["bytes"], [us * 1e-6 for us in entry["us"]]
            return Ramp(sizes, seconds, seconds[-1] / sizes[-1])
    have = ", ".join(str(entry["gpus"]) for entry in profile.all_reduce)
    raise InputError(f"{profile.name} has all-reduces of {have or 'no number of'} GPUs only",
                     field="parallelism.tp", got=replica.tp)


def _experts(profile: Profile, replica: Replica, model: Any, dtype: str, said: list[str]) -> Curve:
    """Return the experts of one layer over tokens: measured for this shape, or a roofline at the achieved rates."""
    moe = model.moe
    width = moe.expert_params // (3 * replica.d_model)
    for entry in profile.moe:
        same = (entry["experts"], entry["top_k"], entry["hidden"], entry["width"], entry["dtype"], entry["tp"])
        if same == (moe.experts, moe.top_k, replica.d_model, width, dtype, replica.tp):
            return Curve(entry["tokens"], [us * 1e-6 for us in entry["us"]])
    fit = profile.fit.get("moe") or profile.fit.get(f"linear/{dtype}", {})
    group = replica.tp * replica.pp
    flops = float(fit.get("flops") or 0.5 * replica.peak_flops / group)
    Bps = float(fit.get("Bps") or 0.7 * replica.hbm_Bps / group)
    size = moe.expert_params * model.weight_bytes(dtype) / model.n_params / replica.tp
    said.append(f"experts of {model.name} at tp {replica.tp}: not measured in this shape, a roofline at the achieved "
                "rates")
    tokens = [2.0 ** power for power in range(16)]
    return Curve(tokens, [float(fit.get("overhead_s", 1e-5)) + max(
        2.0 * moe.top_k * moe.expert_params / replica.tp * count / flops,
        model.experts_touched(count) * size / Bps) for count in tokens])
