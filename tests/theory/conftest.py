"""Fixtures of the queueing-theory tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def lab() -> ModuleType:
    """The helpers of `lab.py`, as a module."""
    spec = importlib.util.spec_from_file_location("theory_lab", Path(__file__).with_name("lab.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["theory_lab"] = module
    spec.loader.exec_module(module)
    return module
