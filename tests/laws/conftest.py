"""The laws share `models`: reference models, and small clusters put together by hand."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("laws", derandomize=True, deadline=None, print_blob=False,
                          suppress_health_check=list(HealthCheck))
settings.load_profile("laws")
