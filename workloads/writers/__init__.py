"""Writes trajectories in the formats that can hold them; `WRITERS` is the list."""

from __future__ import annotations

from collections.abc import Callable

from workloads.writers.hashed import write_dynamo, write_kv_cache_tester, write_mooncake
from workloads.writers.kvplan_jsonl import write_kvplan
from workloads.writers.otel_genai import write_otel
from workloads.writers.tables import write_azure, write_sessions

__all__ = ["WRITERS"]

#: Format -> ``write(trajectories, path)``, which returns how many it wrote. `trajectories` is a function that yields
#: them afresh at each call: kvplan reads them twice.
WRITERS: dict[str, Callable[..., int]] = {
    "kvplan": write_kvplan, "mooncake": write_mooncake, "dynamo-agentic": write_dynamo,
    "kv-cache-tester": write_kv_cache_tester, "azure": write_azure, "sessions-csv": write_sessions,
    "otel-genai": write_otel,
}
