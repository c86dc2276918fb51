"""Turn samples into a measured profile: tables, a parametric fit, and the error on points the tables have not seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from calibrate import blocks, build, held_out, parametric
from calibrate.frames import Frames
from sim.timing.measured_profile import Profile


def profile(frames: Frames, name: str, *, catalogue_only: bool = False,
            engine: Mapping[str, Any] | None = None) -> Profile:
    """Fit the samples of one GPU.

    Parameters
    ----------
    frames
        The samples.
    name
        What the profile is called, as in ``timing: {measured: NAME}``.
    catalogue_only
        Keep only the attention shapes and experts that a model of the catalogue has (public collections hold many).
    engine
        What an engine adds to its kernels, if it is known; see `Profile`.

    Returns
    -------
    Profile
    """
    if catalogue_only:
        frames = build.of_catalogue(frames)
    _, experts = build.catalogue_shapes()
    error = held_out.summary(held_out.points(frames))
    provenance = {**frames.provenance, "fitted": datetime.now(UTC).strftime("%Y-%m-%d"), "by": _version()}
    return Profile(
        name=name, gpu=frames.gpu, device=frames.device, planning=frames.planning, provenance=provenance,
        linear=build.linear(frames.get("linear")),
        decode_attention=tuple(build.decode(frames.get("decode_attention"), frames.l2_bytes)),
        prefill_attention=tuple(build.prefill(frames.get("prefill_attention"))),
        block_efficiency=blocks.fit(blocks.ratios(frames)),
        latent=tuple(build.latent(frames.get("latent_decode"), frames.get("latent_prefill"), frames.l2_bytes)),
        all_reduce=tuple(build.all_reduce(frames.get("all_reduce"), frames.switches)),
        moe=tuple(build.moe(frames.get("moe"), experts if catalogue_only else None)),
        swap=tuple(build.swap(frames.get("swap"))),
        fit=parametric.fit_all({**frames.tables, "decode_attention": _far(frames)}), error=error,
        engine=dict(engine or {}))


def _far(frames: Frames) -> Any:
    """Return the decode samples that read HBM: the bandwidth must not be a cache's."""
    table = frames.get("decode_attention")
    return table[build.beyond_l2(table, frames.l2_bytes)] if len(table) else table


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"kvplan {version('kvplan')}"
    except PackageNotFoundError:
        return "kvplan"
