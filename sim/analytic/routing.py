"""The score of prefix-affine routing."""

from __future__ import annotations


def router_score(match_tokens: float, prompt_tokens: float, load: float, load_max: float, mu: float,
                 gamma: float = 1.0) -> float:
    """Return ``mu * match/S - (1 - mu) * (load/load_max)**gamma``; the replica with the highest wins.

    Parameters
    ----------
    match_tokens, prompt_tokens
        Prompt tokens the replica already holds, and all of the prompt's.
    load, load_max
        Load of the replica and of the most loaded one, in the same unit. No load anywhere counts as 0.
    mu
        Weight of the hit against the load, in [0, 1].
    gamma
        How sharply load repels (> 0).
    """
    hit = match_tokens / prompt_tokens if prompt_tokens > 0 else 0.0
    relative_load = load / load_max if load_max > 0 else 0.0
    return float(mu * hit - (1.0 - mu) * relative_load**gamma)


def hit_tokens(match_tokens: int, block_size: int) -> int:
    """Return the matched tokens that whole blocks (chunks of the hash chain) cover."""
    return match_tokens // block_size * block_size
