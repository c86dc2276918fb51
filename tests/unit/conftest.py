"""The unit tests share `fake_engine`, a stand-in for the engine, and `tiny_sweep`, a sweep of six small points."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tiny_sweep import scenario as scenario
from tiny_sweep import whole as whole


@pytest.fixture(scope="session")
def engine():
    """The stand-in for the engine, as a module."""
    import fake_engine

    return fake_engine
