"""What was measured on a GPU: the tables of one profile, as they are stored, and how to find it.

A profile is a JSON file in `hardware_profiles/measured/`, named as in ``timing: {measured: h100_sxm/vllm-0.24}``, or
any file whose name ends in ``.json``. Times in it are microseconds of one kernel on one GPU; everything else is SI.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.writing import whole_file

#: First line of every profile; another one is another format.
FORMAT = "kvplan measured profile 1"

#: Formats of weights and KV that run on the same kernels.
SAME_KERNELS = {"fp16": "bf16"}


@dataclass(frozen=True, slots=True)
class Profile:
    """One measured profile.

    Attributes
    ----------
    name, gpu, device
        What it is called; the catalogue's GPU it belongs to; the device's own name.
    planning
        False for measurements that only exercise the code (a CPU): they are refused for planning.
    provenance
        Where the numbers come from: source, version, licence, date, command, hashes.
    linear
        Matrix products, by format of the weights: ``shapes`` [(n, k)], ``tokens``, ``us`` [shape][tokens], and for row
        counts above 16 that are no multiple of 16 ``tokens_ragged`` and ``us_ragged``.
    decode_attention
        One entry a shape (``heads``, ``kv_heads``, ``head_dim``, ``kv_dtype``, of one GPU): ``rows`` of ``batch``,
        ``tokens`` (KV tokens of the batch together) and ``us``.
    prefill_attention
        Likewise: ``new`` tokens, ``past`` tokens, ``us`` [past][new]; one sequence.
    block_efficiency
        Decode attention by block size: ``blocks`` (tokens), ``efficiency`` (time at `block_size.REFERENCE` tokens over
        time at that size), ``points`` and ``how``; empty if only one size was measured.
    latent
        Latent attention with its products, one entry a shape (``heads``, ``rank``, ``rope``, ``hidden``, ``kv_dtype``,
        ``dtype`` of the weights): ``rows`` as in `decode_attention`; of prompts ``tokens``, ``us`` (what goes with the
        tokens) and ``pair_s`` (seconds a pair of query and key).
    all_reduce
        One entry a number of GPUs: ``gpus``, ``bytes``, ``us``, and where the library is known to change its algorithm
        ``switches``, the first bytes of each one after the first.
    moe
        One entry a shape (``experts``, ``top_k``, ``hidden``, ``width``, ``dtype``, ``tp``): ``tokens``, ``us``.
    swap
        Copies between HBM and host memory: ``direction``, ``method``, ``both_ways``, ``piece_bytes``, ``Bps``.
    fit
        By kernel class: ``overhead_s``, ``flops``, ``Bps``, a parametric fit of the same samples.
    error
        By kernel class: ``median``, ``p90`` (relative, on rows the fit has not seen), ``points`` and ``how``.
    engine
        What an engine adds to its kernels: ``step_s``, ``layer_s``, ``sequence_s``, ``ttft_floor_s``; and how it was
        found.
    """

    name: str
    gpu: str
    device: str
    planning: bool
    provenance: Mapping[str, Any]
    linear: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    decode_attention: tuple[Mapping[str, Any], ...] = ()
    prefill_attention: tuple[Mapping[str, Any], ...] = ()
    block_efficiency: Mapping[str, Any] = field(default_factory=dict)
    latent: tuple[Mapping[str, Any], ...] = ()
    all_reduce: tuple[Mapping[str, Any], ...] = ()
    moe: tuple[Mapping[str, Any], ...] = ()
    swap: tuple[Mapping[str, Any], ...] = ()
    fit: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    error: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)


def folder() -> Path:
    """Return the folder of the shipped profiles."""
    return Path(str(resources.files("hardware_profiles"))) / "measured"


def names() -> list[str]:
    """Return the names of the shipped profiles, sorted."""
    root = folder()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.glob("*/*.json"))


def find(name: str) -> Path:
    """Return the file of a profile, given its name or a path that ends in ``.json``.

    Raises
    ------
    InputError
        There is none.
    """
    if name.endswith(".json"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError("no such measured profile", file=path)
        return path
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known) or 'none'}"
        raise InputError(f"no measured profile is called that; {hint}", got=name)
    return folder() / f"{name}.json"


def engine_of(backend: str | None) -> dict[str, Any]:
    """Return what a serving engine adds to its kernels, as fitted on measured servers; empty if it is not known."""
    path = folder() / "engines.json"
    if backend is None or not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8")).get(backend, {}))


def measured_name(value: Any) -> Any:
    """Check the name of a profile as a scenario gives it; InputError that lists those there are."""
    if isinstance(value, Mapping):
        raise InputError(f"needs the name of a profile: {{measured: NAME}}; there are {', '.join(names()) or 'none'}")
    if isinstance(value, str):
        find(value)
    return value


def read(name: str) -> Profile:
    """Return a profile, given its name or path.

    Raises
    ------
    InputError
        There is none, or the file is no measured profile.
    """
    path = find(name)
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> Profile:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", file=path) from None
    return of_data(data, path)


def of_data(data: Any, path: Path | str = "profile") -> Profile:
    """Return the profile that the content of a file describes; InputError if it is another format."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, Mapping) else None
        raise InputError(f"expected {FORMAT!r}", file=path, field="format", got=found)
    try:
        lists = ("decode_attention", "prefill_attention", "latent", "all_reduce", "moe", "swap")
        fields: dict[str, Any] = {name: tuple(data[name]) if name in lists else data[name]
                                  for name in Profile.__dataclass_fields__ if name in data}
        return Profile(**fields)
    except TypeError as error:
        raise InputError(f"is incomplete: {error}", file=path) from None


def write(profile: Profile, path: Path) -> None:
    """Store a profile, one table a line, so that a diff shows what changed."""
    data = {"format": FORMAT, **{name: getattr(profile, name) for name in Profile.__dataclass_fields__}}
    lines = []
    for name, value in data.items():
        if isinstance(value, tuple | list) and value:
            rows = ",\n".join("  " + _compact(item) for item in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        elif name == "linear" and value:
            rows = ",\n".join(f'  "{key}": {_shapes(item)}' for key, item in value.items())
            lines.append(f'"{name}": {{\n{rows}\n}}')
        elif isinstance(value, Mapping) and value:
            rows = ",\n".join(f'  "{key}": {_compact(item)}' for key, item in value.items())
            lines.append(f'"{name}": {{\n{rows}\n}}')
        else:
            lines.append(f'"{name}": {_compact(value)}')
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _shapes(table: Mapping[str, Any]) -> str:
    parts = []
    for key, value in table.items():
        if key.startswith("us"):
            parts.append(f'"{key}": [\n' + ",\n".join("    " + _compact(row) for row in value) + "]")
        else:
            parts.append(f'"{key}": {_compact(value)}')
    return "{" + ",\n   ".join(parts) + "}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
