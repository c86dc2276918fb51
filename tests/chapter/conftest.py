"""Fixtures of the worked numbers that are given by the simulator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def rig() -> ModuleType:
    """The helpers of `rig.py`, as a module."""
    spec = importlib.util.spec_from_file_location("chapter_rig", Path(__file__).with_name("rig.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["chapter_rig"] = module
    spec.loader.exec_module(module)
    return module
