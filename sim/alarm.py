"""A point in simulated time at which one function is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy


class Alarm(simpy.Event):
    """A timeout that nobody waits for: after `delay_s` seconds (>= 0) it calls `ring` with itself.

    It is what the engine does most often, so it goes without the list and the lookups that a `simpy.Timeout` makes.
    """

    def __init__(self, env: simpy.Environment, delay_s: float, ring: Callable[[Any], None], value: Any = None) -> None:
        self.env = env
        self.callbacks = [ring]
        self._value = value
        self._ok = True
        env.schedule(self, delay=delay_s)
