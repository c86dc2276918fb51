"""A kernel is timed only if its output is right."""

from __future__ import annotations

import torch

#: Largest relative error, in the Frobenius norm, that each format may have against the fp32 reference.
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 4e-3, "fp8": 1e-1}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Fills what a kernel must not let into its result: tails of blocks (finite, as engines leave old tokens there).
TAIL = 1e4


class WrongKernelError(RuntimeError):
    """A kernel's output is not what the reference says."""


def agree(output: torch.Tensor, reference: torch.Tensor, dtype: str) -> float:
    """Return the relative error of an output.

    Raises
    ------
    WrongKernelError
        The shapes differ, the output holds NaN or infinity (poison that should not have been read, or an element that
        was not written), or the error is above `TOLERANCE`.
    """
    if output.shape != reference.shape:
        raise WrongKernelError(f"the output has shape {tuple(output.shape)}, not {tuple(reference.shape)}")
    found = output.float()
    if not bool(torch.isfinite(found).all()):
        share = 1.0 - float(torch.isfinite(found).float().mean())
        raise WrongKernelError(f"{share:.1%} of the output is not finite: it read what it must not, or did not write")
    error = float((found - reference).norm() / reference.norm().clamp_min(1e-30))
    if error > TOLERANCE[dtype]:
        raise WrongKernelError(f"the relative error is {error:.2e}, above {TOLERANCE[dtype]:.0e} for {dtype}")
    return error
