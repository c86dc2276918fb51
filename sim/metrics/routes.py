"""Did turns come back to the replica that had served the turn before, and what did those find that did not?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics import ledgers
from sim.metrics.collect import Columns
from sim.records import TIERS

_SUMS = ("turns", "prompt_tokens", "hit_tokens", "recomputed_tokens")


def measured(columns: Columns, chosen: NDArray[np.bool_], turn: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Add up the chosen turns that follow another on the same line (the main one, a branch), in two groups.

    Parameters
    ----------
    columns
        Records of the replication.
    chosen
        The turns that are measured.
    turn
        Columns of the chosen turns.

    Returns
    -------
    dict
        ``stayed_*``, on the replica of the turn before, and ``moved_*``, on another one: `turns`, `prompt_tokens`,
        `hit_tokens` and `recomputed_tokens`; and `prompt_tokens` of every chosen turn.
    """
    replica = columns("turns", "replica")
    rows = np.flatnonzero(replica >= 0)  # a turn that was turned away has had none
    line = [columns("turns", name)[rows] for name in ("turn", "branch", "trajectory")]
    order = np.lexsort(line)
    rows = rows[order]
    _, branch, trajectory = (values[order] for values in line)
    follows = np.zeros(rows.size, dtype=bool)
    follows[1:] = (branch[1:] == branch[:-1]) & (trajectory[1:] == trajectory[:-1])
    elsewhere = np.zeros(rows.size, dtype=bool)
    elsewhere[1:] = replica[rows[1:]] != replica[rows[:-1]]
    counted = follows & chosen[rows]
    found = {"prompt_tokens": int(turn["prompt_tokens"].sum())}
    hits = np.sum([columns("turns", f"hit_{tier}_tokens") for tier in ("hbm", *TIERS)], axis=0)
    values = {"turns": np.ones(replica.size, dtype=np.int64), "hit_tokens": hits,
              **{name: columns("turns", name) for name in ("prompt_tokens", "recomputed_tokens")}}
    for group, mask in (("stayed", counted & ~elsewhere), ("moved", counted & elsewhere)):
        found |= {f"{group}_{name}": int(values[name][rows[mask]].sum()) for name in _SUMS}
    return found


def summary(parts: Sequence[Mapping[str, int]], replicas: int) -> dict[str, float | None] | None:
    """Return how many turns came back to another replica, and what that cost; None with a single replica.

    Returns
    -------
    dict
        `moved`: share of the turns that follow another which another replica served; `found_moved`, `found_stayed`:
        share of their prompt tokens that these and the others found in a cache; `recomputed_moved`: tokens that the
        former computed again, as a share of all prompt tokens, so the most that the hit rate lost.
    """
    if replicas < 2:
        return None
    total = ledgers.add(dict(part) for part in parts)

    def share(part: str, whole: float) -> float | None:
        return total[part] / whole if whole else None

    return {"moved": share("moved_turns", total["moved_turns"] + total["stayed_turns"]),
            "found_moved": share("moved_hit_tokens", total["moved_prompt_tokens"]),
            "found_stayed": share("stayed_hit_tokens", total["stayed_prompt_tokens"]),
            "recomputed_moved": share("moved_recomputed_tokens", total["prompt_tokens"])}
