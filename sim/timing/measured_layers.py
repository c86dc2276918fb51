"""Kernels of a model on one GPU of a replica, put together from the tables of a measured profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from sim.errors import InputError
from sim.timing.measured_profile import SAME_KERNELS, Profile
from sim.timing.measured_tables import Curve, Switched
from sim.timing.roofline import Replica


class Linear:
    """Matrix products of one GPU against tokens, all layers together, and the output layer.

    The products of `rest_layers` layers have unknown shapes (see `unknown_params`): a roofline at the achieved rates.
    """

    def __init__(self, profile: Profile, replica: Replica, model: Any, dtype: str, said: list[str],
                 rest_layers: int = 0) -> None:
        kernels = SAME_KERNELS.get(dtype, dtype)
        if kernels not in profile.linear:
            raise InputError(f"{profile.name} has matrix products in {', '.join(profile.linear)} only",
                             field="weights_dtype", got=dtype)
        table = profile.linear[kernels]
        tp, d = replica.tp, replica.d_model
        shapes = products(model, tp)
        self._even = _sum_of(table, shapes, "", said)
        self._ragged = _sum_of(table, shapes, "_ragged", said)
        head = profile.linear.get("bf16", table)
        self._output = _sum_of(head, [((max(1, model.vocab // tp), d), 1.0)], "", said) if model.vocab else None
        self._experts = _experts(profile, replica, model, kernels, said) if model.moe else None
        self._moe_layers = float(model.moe.layers if model.moe else 0)
        self.low, self.high = self._even.low, self._even.high
        fit = profile.fit.get(f"linear/{kernels}", {})
        group = tp * replica.pp
        self._flops = float(fit.get("flops") or 0.6 * replica.peak_flops / group)
        self._Bps = float(fit.get("Bps") or 0.8 * replica.hbm_Bps / group)
        self._active, self._read = replica.active_params, replica.weight_read_bytes
        #: Parameters of a GPU in products of unknown shape, what an element of them takes, and the launches they need.
        self._rest = unknown_params(model) / tp if rest_layers else 0.0
        self._rest_bytes = self._rest * float(model.weight_bytes(dtype)) / model.n_params
        self._rest_launch_s = 2.0 * rest_layers * float(fit.get("overhead_s", 0.0))

    def layers_s(self, tokens: float, *, ragged: bool = False) -> float:
        """Return the seconds of all layers' products for `tokens` rows; `ragged` if they are not padded."""
        curve = self._ragged if ragged and tokens > 16 and tokens % 16 else self._even
        total = curve(tokens)
        if self._experts is not None:
            total += self._moe_layers * self._experts(tokens)
        if self._rest:
            total += self._rest_launch_s + max(2.0 * self._rest * tokens / self._flops, self._rest_bytes / self._Bps)
        return total

    def output_s(self, rows: float) -> float:
        """Return the seconds of the output layer for so many rows (16-bit, one row a sequence)."""
        return self._output(rows) if self._output is not None else 0.0

    def weights_bind(self, tokens: float) -> bool:
        """Return whether reading the weights takes longer than multiplying them, at the achieved rates."""
        return self._read(tokens) / self._Bps >= 2.0 * self._active * tokens / self._flops


def products(model: Any, tp: int) -> list[tuple[tuple[int, int], float]]:
    """Return (n, k) of a layer's products on one GPU, and in how many layers each is.

    Queries, keys and values; the output of attention; gate and up; down; of shared experts too. Latent attention is
    measured with its products, and those of linear-attention layers are not known: neither is here.
    """
    d = model.d_model
    attending = float(model.n_layers - (model.linear.layers if model.linear else 0))
    found = []
    if not model.mla:
        qkv = (model.n_heads // tp + 2 * max(1, model.n_kv_heads // tp)) * model.head_dim
        found += [((qkv, d), attending), ((d, model.d_attn // tp), attending)]
    moe_layers = model.moe.layers if model.moe else 0
    shared = expert_widths(model)[1] if model.moe else 0
    for wide, times in ((model.d_ff, model.n_layers - moe_layers), (shared, moe_layers)):
        if wide and times:
            found += [((2 * wide // tp, d), float(times)), ((d, max(1, wide // tp)), float(times))]
    return found


def expert_widths(model: Any) -> tuple[int, int]:
    """Return the width of one routed expert, and of the shared ones of a layer together."""
    moe = model.moe
    width = moe.expert_params // (3 * model.d_model)  # biases may add one
    for shared in range(3):
        each, left = divmod(model.d_ff, moe.top_k + shared)
        if not left and abs(each - width) <= 1:
            return each, shared * each
    return width, 0


def unknown_params(model: Any) -> float:
    """Return the parameters every token passes through that are in none of `products`, nor in the vocabulary's."""
    known = sum(n * k * times for (n, k), times in products(model, 1))
    return float(max(0.0, model.dense_params - known - 2.0 * model.vocab * model.d_model))


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


def all_reduce(profile: Profile, replica: Replica) -> Switched | None:
    """Return the seconds of an all-reduce of one replica's GPUs over its bytes; None for a single GPU."""
    if replica.tp == 1:
        return None
    for entry in profile.all_reduce:
        if entry["gpus"] == replica.tp:
            sizes, seconds = entry["bytes"], [us * 1e-6 for us in entry["us"]]
            return Switched(sizes, seconds, entry.get("switches", ()), seconds[-1] / sizes[-1])
    have = ", ".join(str(entry["gpus"]) for entry in profile.all_reduce)
    raise InputError(f"{profile.name} has all-reduces of {have or 'no number of'} GPUs only",
                     field="parallelism.tp", got=replica.tp)


def _experts(profile: Profile, replica: Replica, model: Any, dtype: str, said: list[str]) -> Curve:
    """Return the experts of one layer over tokens: measured for this shape, or a roofline at the achieved rates."""
    moe = model.moe
    width, _ = expert_widths(model)
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
