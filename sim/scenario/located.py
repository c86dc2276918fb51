"""Where a scenario wrote the field that turns out wrong only when it is worked with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sim.errors import _MISSING, InputError

if TYPE_CHECKING:
    from sim.scenario.model import Scenario


@contextmanager
def located(scenario: Scenario) -> Iterator[None]:
    """Give errors about a field of a scenario the file and the line (or the override) that it was loaded from.

    Errors that know their place, that name no field of a scenario, and those about one that was not loaded are left as
    they are.
    """
    try:
        yield
    except InputError as error:
        places, path = scenario.places, tuple((error.field or "").split("."))
        if places is None or error.file is not None or path[0] not in type(scenario).model_fields:
            raise
        if error.got is _MISSING:
            raise places.error(path, error.reason) from None
        raise places.error(path, error.reason, error.got) from None
