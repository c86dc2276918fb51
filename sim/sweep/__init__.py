"""Running scenarios, one or many, and keeping what they say.

The package is also the function of its name: ``sim.sweep(scenario, ...)`` is `sim.sweep.sweeping.sweep`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """This package, callable."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run a sweep; see `sim.sweep.sweeping.sweep`."""
        from sim.sweep.sweeping import sweep

        return sweep(*arguments, **options)


sys.modules[__name__].__class__ = _Package
