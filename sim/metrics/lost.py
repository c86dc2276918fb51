"""Contexts that were moved below HBM and evicted from there before their agents came back for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics import ledgers
from sim.metrics.collect import Columns
from sim.records import TIER_LABELS, TIERS

#: Share of the contexts moved to a tier, lost there, from which it is worth a remark; and the same of its room that
#: held what nobody read again.
LOST, UNREAD = 0.01, 0.1


def measured(columns: Columns, begin: float, tiers: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return, for each tier, how many contexts lay there when their agents came back, and how many of them no longer.

    A context is lost when the turn that follows the pause computes again what had been moved: `tokens` of them, which
    waited in the tier for `byte_s`. Replication by replication; pauses that began before `begin` are left out.
    """
    moved = columns.equals("pauses", "action", "offload") & (columns("pauses", "start_s") >= begin)
    if not moved.any():
        return {tier: {"moved": 0, "lost": 0, "tokens": 0, "byte_s": 0.0} for tier in tiers}
    tokens = np.minimum(_computed_again(columns), columns("pauses", "private_tokens"))
    found = {}
    for tier in tiers:
        held_byte_s = columns("pauses", f"hold_{tier}_byte_s")
        here = moved & (held_byte_s > 0)
        gone = here & (tokens > 0)
        found[tier] = {"moved": int(here.sum()), "lost": int(gone.sum()), "tokens": int(tokens[gone].sum()),
                       "byte_s": float(held_byte_s[gone].sum())}
    return found


def _computed_again(columns: Columns) -> NDArray[np.float64]:
    """Return, for each pause, the tokens that the turn after it computed although they had been computed before."""
    import pandas as pd

    keys = ["trajectory", "ready_s"]
    turns = pd.DataFrame({name: columns("turns", name) for name in (*keys, "recomputed_tokens")})
    pauses = pd.DataFrame({"trajectory": columns("pauses", "trajectory"), "ready_s": columns("pauses", "end_s")})
    after = pauses.merge(turns.drop_duplicates(keys, keep="last"), how="left", on=keys)
    return after["recomputed_tokens"].fillna(0.0).to_numpy(np.float64)


def summary(found: Sequence[Mapping[str, Any]], tier_byte_s: Mapping[str, Mapping[str, float]],
            if_kept: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the tiers that lost contexts while much of them held what nobody read again.

    Parameters
    ----------
    found
        Of each replication, see `measured`.
    tier_byte_s
        Byte-seconds of each tier by use (`sim.records.TIER_USES`).
    if_kept
        Tiers in which a context stays when it has been read. In the others nothing is left of trajectories that have
        ended.

    Returns
    -------
    dict
        Tier -> contexts `moved` and `lost`, `tokens` computed again, and `unread`: the share of what it stored over
        time that was not read again, apart from what was lost.
    """
    made = {}
    for tier, count in ledgers.add([dict(part) for part in found]).items():
        uses = tier_byte_s.get(tier, {})
        stored = sum(amount for use, amount in uses.items() if use != "free")
        unread = max(uses.get("unread", 0.0) - count["byte_s"], 0.0) / stored if stored > 0 else 0.0
        if tier in if_kept and count["lost"] > LOST * count["moved"] and unread > UNREAD:
            made[tier] = {name: count[name] for name in ("moved", "lost", "tokens")} | {"unread": unread}
    return {tier: made[tier] for tier in TIERS if tier in made}


def said(made: Mapping[str, Any]) -> list[str]:
    """Return a line, without a full stop, for each tier that the summary of a run names."""
    from sim.metrics.wording import number, percent

    return [f"{number(found['lost'])} of {number(found['moved'])} contexts moved to {TIER_LABELS[tier]} were evicted "
            f"there before their agents came back ({number(found['tokens'])} tokens computed again), while "
            f"{percent(found['unread'])} of what it stored over time was not read again: contexts of trajectories that "
            "have ended stay until they are evicted, and push out those used longer ago; more capacity or "
            f"tiers.{tier}.exclusive: true keeps more of the living"
            for tier, found in (made.get("lost_contexts") or {}).items()]
