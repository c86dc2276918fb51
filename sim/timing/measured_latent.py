"""Latent attention (MLA) of a model on one GPU of a replica: measured as a whole module, or a roofline in its place.

A measured module holds everything between a layer's normed input and the residual: the down- and up-projections,
attention over the latent, the output product. Its times for prompts are split into what goes with the tokens (products
and launches) and seconds a pair of query and key, so that a step's chunks share the first and a cached past adds to the
second.
"""

from __future__ import annotations

from typing import Any

from sim.timing.base import Chunks
from sim.timing.block_size import efficiency
from sim.timing.measured_profile import SAME_KERNELS, Profile
from sim.timing.measured_tables import Curve, DecodeTable, Excursions
from sim.timing.roofline import Replica

#: Bytes of an element of the latent cache.
_ELEMENT = {"bf16": 2.0, "fp8": 1.0}


class LatentAttention:
    """Latent attention of all layers on one GPU, from a measured module.

    Parameters
    ----------
    entry
        Tables of the model's heads on one GPU: ``rows`` as decode attention has them, ``tokens``, ``us`` and ``pair_s``
        of prompts.
    replica, model
        Geometry.
    token_bytes
        Of one token's latent in one layer; every GPU of a group reads it whole.
    Bps, flops
        Achieved rates, for reading a cached past and multiplying it out.
    slower
        Factor of the time to read the latents of a batch, because of the block size.
    """

    def __init__(self, entry: Any, replica: Replica, model: Any, token_bytes: float, Bps: float, flops: float,
                 slower: float = 1.0) -> None:
        last = entry["rows"][-1]
        slope = (last["us"][-1] - last["us"][-2]) / (last["tokens"][-1] - last["tokens"][-2]) * 1e-6
        self.decode = DecodeTable(entry["rows"], slope, slower, keep=True)
        self.tokens = Curve(entry["tokens"], [us * 1e-6 for us in entry["us"]])
        self.pair_s = float(entry["pair_s"])
        self.Bps = Bps
        self._layers, self._pp = float(replica.full_layers), replica.pp
        up = 2.0 * model.mla.kv_lora_rank * (2 * model.head_dim - model.mla.rope_dim) * model.n_heads / replica.tp
        self._past_s = token_bytes / Bps + up / flops

    def decode_s(self, decoding: float, context: float) -> float:
        """Return the seconds of the modules for `decoding` turns whose contexts sum to `context`."""
        return self._layers * self.decode(decoding / self._pp, context / self._pp)

    def note(self, excursions: Excursions, decoding: float, context: float) -> None:
        """Count a look-up of the decode module."""
        excursions.note("latent_decode_attention", context / self._pp, 0.0, self.decode.reach(decoding / self._pp))

    def products_s(self, decoding: float, new: float) -> tuple[float, float]:
        """Return the seconds of products (and launches) within the modules, of decoding turns and of chunks."""
        return (self._layers * self.decode(decoding / self._pp, 0.0) if decoding else 0.0,
                self._layers * self.tokens(new / self._pp) if new else 0.0)

    def chunks_s(self, chunks: Chunks, excursions: Excursions) -> float:
        """Return the seconds of the modules for a step's chunks.

        A cached past is read and multiplied out once a layer, and every pair of a new and a past token costs what a
        pair of new ones was measured to.
        """
        new = sum(count for count, _ in chunks) / self._pp
        excursions.note("latent_prefill_attention", new, self.tokens.low, self.tokens.high)
        total = self.tokens(new)
        for count, past in chunks:
            if past:
                excursions.note("prefill_on_cached_past", past, 0.0, 1.0)
            total += (self.pair_s * count * (past + count / 2.0) + past * self._past_s) / self._pp
        return self._layers * total


class RooflineLatent:
    """Latent attention where no module was measured: arithmetic or bytes at the achieved rates, each use counted.

    Its products are among those of unknown shape (`measured_layers.unknown_params`).
    """

    def __init__(self, replica: Replica, model: Any, token_bytes: float, Bps: float, flops: float,
                 slower: float = 1.0) -> None:
        mla = model.mla
        heads = float(model.n_heads) / replica.tp
        self.Bps = Bps
        self._layers, self._pp = float(replica.full_layers), replica.pp
        #: Decoding works on the latent itself: scores over latent and rotary key, values of the latent.
        self._decode_s: float = max(2.0 * heads * (2 * mla.kv_lora_rank + mla.rope_dim) / flops,
                                   token_bytes / Bps * slower)
        self._pair_s: float = 4.0 * heads * model.head_dim / flops
        self._read_s = token_bytes / Bps

    def decode_s(self, decoding: float, context: float) -> float:
        """Return the seconds of attention of `decoding` turns whose contexts sum to `context`."""
        return self._layers * self._decode_s * context / self._pp

    def note(self, excursions: Excursions, decoding: float, context: float) -> None:
        """Count a use of what was not measured."""
        excursions.unmeasured("latent_attention")

    def products_s(self, decoding: float, new: float) -> tuple[float, float]:
        """Return the seconds of products within attention: none, they are with the others."""
        return 0.0, 0.0

    def chunks_s(self, chunks: Chunks, excursions: Excursions) -> float:
        """Return the seconds of attention of a step's chunks."""
        excursions.unmeasured("latent_attention")
        return self._layers / self._pp * sum(max(self._pair_s * new * (past + new / 2.0), self._read_s * past)
                                             for new, past in chunks)


def latent(profile: Profile, replica: Replica, model: Any, weights_dtype: str, kv_dtype: str,
           said: list[str]) -> LatentAttention | RooflineLatent:
    """Return latent attention: the module measured at the model's shape, or a roofline that `said` tells of."""
    weights, kv = SAME_KERNELS.get(weights_dtype, weights_dtype), SAME_KERNELS.get(kv_dtype, kv_dtype)
    group = replica.tp * replica.pp
    products = profile.fit.get(f"linear/{weights}", {})
    flops = float(products.get("flops") or 0.6 * replica.peak_flops / group)
    Bps = float(profile.fit.get("decode_attention", {}).get("Bps") or 0.8 * replica.hbm_Bps / group)
    slower = 1.0 / efficiency(profile.block_efficiency, replica.block_tokens)
    token_bytes = (model.mla.kv_lora_rank + model.mla.rope_dim) * _ELEMENT.get(kv, 2.0)
    shape = {"heads": model.n_heads // replica.tp, "rank": model.mla.kv_lora_rank, "rope": model.mla.rope_dim,
             "hidden": replica.d_model, "kv_dtype": kv, "dtype": weights}
    for entry in profile.latent:
        if all(entry[name] == value for name, value in shape.items()):
            return LatentAttention(entry, replica, model, token_bytes, Bps, flops, slower)
    said.append(f"latent attention of {shape['heads']} heads, KV in {kv}, weights in {weights}: not measured, a "
                "roofline at the achieved rates")
    return RooflineLatent(replica, model, token_bytes, Bps, flops, slower)
