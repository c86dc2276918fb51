"""A point in simulated time at which one function is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import simpy


class Alarm:
    """A timeout that nobody waits for: after `delay_s` seconds (>= 0) it calls `ring` with itself.

    It is what the engine does most often, so it is no `simpy.Event`, which can be waited for, fail and be joined with
    others, but just what SimPy's schedule asks of one that has come true: functions to call, and that all is well.
    """

    __slots__ = ("callbacks", "value")

    _ok: ClassVar[bool] = True

    def __init__(self, env: simpy.Environment, delay_s: float, ring: Callable[[Any], None], value: Any = None) -> None:
        self.callbacks: Any = (ring,)
        self.value = value
        schedule: Any = env.schedule
        schedule(self, 1, delay_s)
