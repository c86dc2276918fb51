"""Fits a spec to recorded trajectories: `fit` does it, `Fit` holds the spec, its text and how good it is."""

from __future__ import annotations

from workloads.fit.fitting import Fit, fit

__all__ = ["Fit", "fit"]
