"""The kernels that are timed, one file a backend, and the fp32 references each has to match first.

A backend is a module with

``KERNEL``
    what it computes (``decode_attention``, ``prefill_attention``, ``linear``, ``copy_blocks``, ``swap``);
``NAME``
    what it is called in the samples;
``missing(device)``
    why it cannot run here, or None;
``version()``
    the version of the library behind it;
``prepare(inputs)``
    a function without arguments that runs the kernel once and returns its output.

Nothing of the simulator is imported here, and no library but torch unless it is there.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Any

#: Every backend, the one a serving engine would use first.
MODULES = (
    "decode_flashinfer", "decode_flash_attn", "decode_vllm", "decode_triton", "decode_flex", "decode_gather",
    "prefill_flashinfer", "prefill_flash_attn", "prefill_vllm", "prefill_flex", "prefill_gather",
    "linear", "hbm_copy", "copy_blocks", "swap_pieces", "swap_staged", "swap_zero_copy",
)


def load(names: tuple[str, ...] = MODULES) -> list[ModuleType]:
    """Return the backends' modules; each imports its own library only when asked to."""
    return [import_module(f"calibrate.kernels.{name}") for name in names]


def installed(name: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    from importlib.util import find_spec

    return find_spec(name) is not None


def lacking(device: Any, library: str) -> str | None:
    """Return why a backend that needs a GPU and a library cannot run here, or None.

    Triton also has an interpreter (``TRITON_INTERPRET=1``), which does without a GPU; only tests ask for it.
    """
    interpreted = library == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not interpreted:
        return "needs a GPU"
    return None if installed(library) else f"{library.replace('_', '-')} is not installed"


def version_of(package: str) -> str:
    """Return the version of an installed package; "" if it has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""
