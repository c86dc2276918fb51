"""What the measured span costs in rented GPUs."""

from __future__ import annotations


def cost(*, gpus: int, price_usd_per_gpu_hour: float | None, span_s: float, trajectories: int, prompt_tokens: int,
         output_tokens: int) -> dict[str, float | None]:
    """Return USD for the measured span, a finished trajectory, and a million tokens.

    Parameters
    ----------
    gpus
        All GPUs of the deployment, busy or not.
    span_s
        Measured span in seconds, summed over replications.
    trajectories, prompt_tokens, output_tokens
        Finished within it.
    """
    if price_usd_per_gpu_hour is None:
        return dict.fromkeys(("usd", "usd_per_trajectory", "usd_per_Mtok_output", "usd_per_Mtok_total"))
    usd = gpus * price_usd_per_gpu_hour * span_s / 3600

    def each(count: float) -> float | None:
        return usd / count if count else None

    return {"usd": usd, "usd_per_trajectory": each(trajectories), "usd_per_Mtok_output": each(output_tokens / 1e6),
            "usd_per_Mtok_total": each((prompt_tokens + output_tokens) / 1e6)}
