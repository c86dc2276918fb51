"""Fixtures of the unit tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def engine():
    """The stand-in for the engine, as a module."""
    spec = importlib.util.spec_from_file_location("fake_engine", Path(__file__).with_name("fake_engine.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_engine"] = module
    spec.loader.exec_module(module)
    return module
