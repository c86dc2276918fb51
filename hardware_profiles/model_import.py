"""From a Hugging Face `config.json` to a model profile.

What a model is made of is read from the fields present, not from its name, so families that reuse the usual fields
(Llama, Qwen, Mixtral, gpt-oss, DeepSeek, Kimi, ...) need no code of their own. Parameters are counted as

    embeddings (twice unless tied) + per layer: attention + feed-forward or router, experts and shared experts + norms

Multi-token-prediction layers are left out. `n_active_params` of a mixture of experts leaves out the input embedding,
which is looked up and not multiplied, as publishers do; that of a dense model is all parameters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hardware_profiles.catalogue import validate
from hardware_profiles.models import ModelProfile
from hardware_profiles.parameters import AttentionShape, LinearShape, mlp_params
from sim.errors import InputError

_TIED_BY_DEFAULT = ("gemma", "cohere")
_NO_WINDOW_BY_DEFAULT = ("qwen",)


class _Config:
    """A `config.json` whose fields are asked for by name; complaints name the file and the field."""

    def __init__(self, data: dict[str, Any], path: str) -> None:
        self.data = data
        self.path = path

    def get(self, *names: str) -> Any:
        """Return the first of the fields that is present and not null, else None."""
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def count(self, *names: str, default: int | None = None) -> int:
        """Return the first of the fields that is present as a whole number; `default` if none is."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError("expected a whole number, not negative", file=self.path, field=name, got=value)
            return value
        if default is None:
            raise InputError("missing" + (f" (nor {', '.join(names[1:])})" if names[1:] else ""), file=self.path,
                             field=names[0])
        return default

    def positive(self, *names: str, default: int | None = None) -> int:
        """Return `count`, which must not be 0."""
        value = self.count(*names, default=default)
        if value == 0:
            name = next((name for name in names if name in self.data), names[0])
            raise InputError("must be greater than 0", file=self.path, field=name, got=0)
        return value

    @property
    def family(self) -> str:
        return str(self.get("model_type") or "")


def import_config(path: str | Path, name: str | None = None) -> ModelProfile:
    """Read a Hugging Face `config.json` into a model profile.

    Parameters
    ----------
    path
        The file.
    name
        What to call the model; the name of the folder it lies in (or of the file, if that is not `config.json`)
        otherwise.

    Returns
    -------
    ModelProfile
        With the file as the source of every figure.

    Raises
    ------
    InputError
        The file cannot be read, is not a decoder's configuration, or lacks a field; names the file and the field.
    """
    path = Path(path)
    config = _read(path)
    if name is None:
        name = path.resolve().parent.name if path.stem == "config" else path.stem
    return profile_of(config.data, name, str(path))


def to_yaml(profile: ModelProfile) -> str:
    """Return a profile as the YAML of the catalogue (`hardware_profiles/models/NAME.yaml`)."""
    import yaml

    return yaml.safe_dump(profile.model_dump(exclude_none=True), sort_keys=False, width=120)


def profile_of(data: dict[str, Any], name: str, path: str) -> ModelProfile:
    """Work out the profile of a configuration; `path` is what complaints and sources call it."""
    config = _Config(data, path)
    hidden = config.positive("hidden_size", "n_embd", "d_model")
    layers = config.positive("num_hidden_layers", "n_layer", "num_layers")
    heads = config.positive("num_attention_heads", "n_head")
    vocab = config.positive("vocab_size")
    attention = _attention(config, hidden, heads)
    kinds = _layer_kinds(config, layers)
    linear = _linear(config, hidden) if kinds["linear_attention"] else None
    moe, feed_forward, d_ff = _feed_forward(config, hidden, layers)
    mixers = (layers - kinds["linear_attention"]) * attention.params()
    if linear:
        mixers += kinds["linear_attention"] * linear.params()
    embedding = vocab * hidden
    tied = _tied(config)
    total = embedding * (1 if tied else 2) + mixers + feed_forward + (2 * layers + 1) * hidden
    active = 0
    if moe:
        routed = moe["layers"] * moe["expert_params"]
        active = total - routed * (moe["experts"] - moe["top_k"]) - (0 if tied else embedding)
    sliding = kinds["sliding_attention"]
    profile = {
        "name": name, "n_params": total, "n_active_params": active or total, "n_layers": layers, "n_heads": heads,
        "n_kv_heads": attention.kv_heads, "head_dim": _head_dim(attention), "d_model": hidden, "d_ff": d_ff,
        "vocab": vocab, "context_limit": config.positive("max_position_embeddings", "n_positions", "seq_length"),
        "moe": moe,
        "mla": {"kv_lora_rank": attention.kv_lora_rank, "rope_dim": attention.rope_dim}
        if attention.kv_lora_rank else None,
        "sliding": {"layers": sliding, "window": config.positive("sliding_window")} if sliding else None,
        "linear": {"layers": kinds["linear_attention"], "state_bytes": linear.state_bytes()} if linear else None,
    }
    derived = {"n_params", "n_active_params"}
    profile["sources"] = {field: f"counted from the shapes in {path}" if field in derived else path
                          for field, value in profile.items() if value is not None and field != "name"}
    return validate(profile, ModelProfile, path)


def _read(path: Path) -> _Config:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not text in UTF-8"
        raise InputError(f"cannot be read: {reason}", file=path) from None
    except RecursionError:
        raise InputError("is nested too deeply", file=path) from None
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=path, line=error.lineno) from None
    if not isinstance(data, dict):
        raise InputError("expected a mapping, as in a model's config.json", file=path, got=type(data).__name__)
    for nested in ("text_config", "llm_config", "language_config"):
        if isinstance(data.get(nested), dict):
            return _Config({**data, **data[nested]}, str(path))
    return _Config(data, str(path))


def _tied(config: _Config) -> bool:
    tied = config.get("tie_word_embeddings")
    return config.family.startswith(_TIED_BY_DEFAULT) if tied is None else bool(tied)


def _head_dim(attention: AttentionShape) -> int:
    """Return the head size that attention's FLOP go with: of latent attention, query-key and value averaged."""
    if not attention.kv_lora_rank:
        return attention.head_dim
    return (attention.head_dim + attention.rope_dim + attention.v_head_dim) // 2


def _attention(config: _Config, hidden: int, heads: int) -> AttentionShape:
    if config.get("kv_lora_rank"):
        return AttentionShape(
            hidden, heads, config.positive("num_key_value_heads", default=heads), config.positive("qk_nope_head_dim"),
            kv_lora_rank=config.positive("kv_lora_rank"), q_lora_rank=config.count("q_lora_rank", default=0),
            rope_dim=config.count("qk_rope_head_dim"), v_head_dim=config.positive("v_head_dim"))
    bias = config.get("attention_bias")
    return AttentionShape(
        hidden, heads, config.positive("num_key_value_heads", "num_kv_heads", default=heads),
        config.positive("head_dim", default=max(1, hidden // heads)),
        bias=config.family.startswith("qwen2") if bias is None else bool(bias),
        gated=config.family.startswith("qwen3_next") or bool(config.get("attn_output_gate")))


def _linear(config: _Config, hidden: int) -> LinearShape:
    return LinearShape(hidden, config.positive("linear_num_key_heads"), config.positive("linear_key_head_dim"),
                       config.positive("linear_num_value_heads"), config.positive("linear_value_head_dim"),
                       config.positive("linear_conv_kernel_dim"))


def _layer_kinds(config: _Config, layers: int) -> dict[str, int]:
    """Return how many layers have full, sliding and linear attention."""
    kinds = {"full_attention": 0, "sliding_attention": 0, "linear_attention": 0}
    listed = config.get("layer_types")
    if listed is None:
        listed = _default_kinds(config, layers)
    if not isinstance(listed, list) or len(listed) != layers:
        raise InputError(f"expected a list of {layers} layers", file=config.path, field="layer_types", got=listed)
    for kind in listed:
        if kind not in kinds:
            raise InputError(f"unknown kind of layer; known: {', '.join(kinds)}", file=config.path,
                             field="layer_types", got=kind)
        kinds[kind] += 1
    return kinds


def _default_kinds(config: _Config, layers: int) -> list[str]:
    """Say which layer is what where `layer_types` is not given, as the families' own code does."""
    full, sliding = "full_attention", "sliding_attention"
    if config.get("full_attention_interval"):
        every = config.positive("full_attention_interval")
        return [full if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
    if config.get("sliding_window_pattern"):
        every = config.positive("sliding_window_pattern")
        return [full if (i + 1) % every == 0 else sliding for i in range(layers)]
    if config.family in ("gpt_oss", "gemma2"):
        return [full if i % 2 else sliding for i in range(layers)]
    windowed = config.get("use_sliding_window")
    if windowed is None:
        windowed = not config.family.startswith(_NO_WINDOW_BY_DEFAULT)
    if not config.get("sliding_window") or not windowed:
        return [full] * layers
    first = config.count("max_window_layers", default=0)
    return [sliding if i >= first else full for i in range(layers)]


def _feed_forward(config: _Config, hidden: int, layers: int) -> tuple[dict[str, int] | None, int, int]:
    """Return the experts (if any), the parameters of all feed-forward layers, and their width for one token."""
    experts = config.count("n_routed_experts", "num_local_experts", "num_experts", default=0)
    if experts <= 1:
        width = config.positive("intermediate_size", "n_inner", "ffn_dim")
        return None, layers * mlp_params(hidden, width), width
    top_k = config.positive("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
    width = config.positive("moe_intermediate_size", "intermediate_size")
    sparse = _sparse_layers(config, layers)
    biased = config.family == "gpt_oss"
    expert = mlp_params(hidden, width, bias=biased)
    shared_width = config.count("shared_expert_intermediate_size",
                                default=config.count("n_shared_experts", default=0) * width)
    shared = mlp_params(hidden, shared_width) + (hidden if config.get("shared_expert_intermediate_size") else 0)
    router = hidden * experts + (experts if biased else 0)
    total = sparse * (experts * expert + router + (shared if shared_width else 0))
    if sparse < layers:
        total += (layers - sparse) * mlp_params(hidden, config.positive("intermediate_size"))
    moe = {"experts": experts, "top_k": top_k, "layers": sparse, "expert_params": expert}
    return moe, total, top_k * width + shared_width


def _sparse_layers(config: _Config, layers: int) -> int:
    """Return the layers that have experts."""
    first = config.count("first_k_dense_replace", default=0)
    every = config.positive("moe_layer_freq", "decoder_sparse_step", default=1)
    offset = 1 if "decoder_sparse_step" in config.data else 0
    dense = set(config.get("mlp_only_layers") or ())
    return sum(i >= first and (i + offset) % every == 0 and i not in dense for i in range(layers))
