"""From a model's geometry to bytes, and from bytes to how many trajectories a pool holds.

Sizes are bytes, lengths are tokens; `dtype_bytes` is bytes an element (2 for bf16, 1 for fp8).
"""

from __future__ import annotations

import math


def kv_bytes_per_token(n_layers: float, n_kv_heads: float, head_dim: float, dtype_bytes: float) -> float:
    """Return the KV bytes one token takes over all layers: ``2 L H_kv d b`` (a key and a value a head)."""
    return 2.0 * n_layers * n_kv_heads * head_dim * dtype_bytes


def mla_bytes_per_token(n_layers: float, kv_lora_rank: float, rope_dim: float, dtype_bytes: float) -> float:
    """Return the bytes one token takes under multi-head latent attention: ``L (kv_lora_rank + rope_dim) b``.

    One latent vector and one shared rotary key a layer (DeepSeek-V2, arXiv:2405.04434, section 2.1).
    """
    return n_layers * (kv_lora_rank + rope_dim) * dtype_bytes


def kv_head_copies(n_kv_heads: int, tp: int) -> float:
    """Return how often a tensor-parallel group of `tp` GPUs holds each KV head, on average.

    With ``tp <= n_kv_heads`` (a divisor) the heads are divided and the answer is 1; beyond, every GPU still needs one
    head, so heads are copied and the answer is ``tp / n_kv_heads``.
    """
    return tp * math.ceil(n_kv_heads / tp) / n_kv_heads


def windowed_tokens(tokens: float, window: float) -> float:
    """Return the tokens a sliding-window layer holds of a context of `tokens`: never more than its window."""
    return min(tokens, window)


def experts_touched(experts: int, top_k: int, tokens: float) -> float:
    """Return the expected number of distinct experts that `tokens` tokens use: ``E (1 - (1 - k/E)^T)``.

    Assumes that every token picks its `top_k` of `experts` evenly and independently of the others.
    """
    return experts * (1.0 - float((1.0 - top_k / experts) ** tokens))


def weight_bytes(n_params: float, param_bytes: float) -> float:
    """Return the bytes `n_params` parameters take at `param_bytes` each."""
    return n_params * param_bytes


def activation_bytes(token_budget: int, max_seqs: int, d_model: int, d_ff: float, vocab: int, tp: int = 1) -> float:
    """Return the peak activation bytes of a step on one GPU.

    ``2 T (4 d_model + 3 d_ff/TP) + 8 max_seqs vocab``: hidden state, residual, attention input and output, and the
    gate, up and product of the feed-forward layer, in 16 bits, for the T tokens of the largest step; then the logits
    in 32 bits and one copy of them while sampling. An estimate: engines measure theirs in a profiling run.

    Parameters
    ----------
    token_budget
        Tokens of the largest step, T.
    max_seqs
        Turns that are sampled in one step.
    d_model, d_ff, vocab
        Width of the hidden state, of the feed-forward layer (of all experts a token uses together) and of the logits.
    tp
        Tensor-parallel degree; the feed-forward part is divided by it, the rest is replicated.
    """
    return 2.0 * token_budget * (4.0 * d_model + 3.0 * d_ff / tp) + 8.0 * max_seqs * vocab


def device_pool_bytes(hbm_bytes: float, utilization: float, weights_bytes: float, activations_bytes: float,
                      runtime_bytes: float) -> float:
    """Return the KV pool of one GPU: ``C_HBM u - weights/(TP PP) - activations - runtime`` (may be negative).

    Parameters
    ----------
    hbm_bytes, utilization
        HBM of the GPU, and the share of it the engine may use.
    weights_bytes, activations_bytes, runtime_bytes
        This GPU's share of the weights, its peak activations, and what the driver, the communication library and
        captured graphs take.
    """
    return hbm_bytes * utilization - weights_bytes - activations_bytes - runtime_bytes


def block_bytes(block_size: int, bytes_per_token: float) -> float:
    """Return the bytes of a block of `block_size` tokens."""
    return block_size * bytes_per_token


def pool_blocks(pool_bytes: float, one_block_bytes: float) -> int:
    """Return how many whole blocks a pool holds."""
    return int(pool_bytes // one_block_bytes)


def pool_tokens(pool_bytes: float, bytes_per_token: float) -> int:
    """Return how many whole tokens a pool holds."""
    return int(pool_bytes // bytes_per_token)


def concurrency(pool_bytes: float, trajectory_bytes: float, headroom: float = 0.0) -> int:
    """Return how many trajectories of `trajectory_bytes` each a pool holds: the floor of the quotient.

    Parameters
    ----------
    pool_bytes
        The pool.
    trajectory_bytes
        Bytes of one trajectory (> 0).
    headroom
        Fraction of the pool kept free of admissions, in [0, 1).
    """
    return max(0, int(pool_bytes * (1.0 - headroom) // trajectory_bytes))


def shared_concurrency(pool_bytes: float, shared_bytes: float, private_bytes: float, headroom: float = 0.0) -> int:
    """Return how many trajectories fit when all share one prefix, which is held once.

    ``floor((pool (1 - headroom) - shared) / private)``, 0 when the prefix itself does not fit.

    Parameters
    ----------
    pool_bytes, headroom
        The pool, and the fraction of it kept free of admissions.
    shared_bytes
        The shared prefix.
    private_bytes
        What each trajectory holds besides (> 0).
    """
    left = pool_bytes * (1.0 - headroom) - shared_bytes
    return max(0, int(left // private_bytes))
