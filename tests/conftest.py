"""What all tests share: hypothesis draws the same examples each time, and takes as long as a busy machine needs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("kvplan", derandomize=True, deadline=None, print_blob=False,
                          suppress_health_check=list(HealthCheck))
settings.load_profile("kvplan")
