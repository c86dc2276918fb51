"""How the KV of a scenario is copied to host memory and back: in which pieces, so at which rates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hardware_profiles import ModelProfile, NodeProfile
from hardware_profiles.nodes import Method, Rates
from sim.errors import InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario


class HostCopies(NamedTuple):
    """Copies over a GPU's host link.

    Attributes
    ----------
    piece_bytes
        Contiguous bytes on one GPU, infinite where they are a whole context's.
    rates
        Of the link, for such pieces.
    latency_s
        Fixed cost of a transfer.
    slowdown
        Share by which steps take longer meanwhile.
    """

    piece_bytes: float
    rates: Rates
    latency_s: float
    slowdown: float


def host_copies(scenario: Scenario, model: ModelProfile, node: NodeProfile, block: float) -> HostCopies:
    """Return how copies go, given the bytes of a block on one GPU.

    In blocks a piece is a block, and with the layout `per_layer` a layer's keys or values of it (of a latent, both). In
    a contiguous buffer it is as long as the context, so the link gives its full rate once a copy has started, which
    takes ``n_1/2 / B``.

    Raises
    ------
    InputError
        The link has no rates for the method.
    """
    link, dram = node.host_link, scenario.tiers.dram
    method: Method = "pieces" if dram is None else dram.method
    pieces = 1.0
    if dram is not None and dram.layout == "per_layer":
        layers = max(1.0, model.full_layers / scenario.parallelism.pp)
        pieces = layers if model.mla else 2.0 * layers
    latency_s, piece = link.latency_s, block / pieces
    if not scenario.engine.allocator.paged:
        piece = math.inf
        if method == "pieces":
            latency_s += pieces * link.half_rate_bytes / link.out_Bps
    try:
        rates = link.achieved(piece, method, node.gpu.hbm_Bps)
    except InputError as error:
        raise error.at(field="tiers.dram.method") from None
    return HostCopies(piece, rates, latency_s, link.slowdown(method))
