"""Measure a GPU, fit what was measured, and show how far the fit is off.

`bench` and `kernels` need torch, numpy and PyYAML only; `fit`, `compare` and the importers run anywhere.
"""
