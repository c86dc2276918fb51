"""Model geometry: bytes a token against the closed form, windows, states, experts, and the import of config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import hardware_profiles
from hardware_profiles import ModelProfile
from hardware_profiles.dtypes import DTYPE_BYTES
from hardware_profiles.model_import import import_config, to_yaml
from sim.analytic import sizing
from sim.errors import InputError

CONFIGS = Path(__file__).parent / "configs"
NAMES = hardware_profiles.names("models")
MODELS = {name: hardware_profiles.model(name) for name in NAMES}
#: Published counts, in billions: all and active (0: not published exactly enough).
PUBLISHED = {
    "llama-3.1-8b": (8.03, 8.03), "llama-3.1-70b": (70.55, 70.55), "llama-3.1-405b": (405.85, 405.85),
    "qwen3-32b": (32.8, 32.8), "qwen3-235b-a22b": (235, 22), "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (140.6, 39), "gpt-oss-20b": (20.91, 3.61), "gpt-oss-120b": (116.83, 5.13),
    "deepseek-v3": (671, 36.6), "deepseek-r1": (671, 36.6), "kimi-k2": (1026, 32), "qwen3-next-80b-a3b": (80, 0),
}
geometry = st.builds(
    ModelProfile, n_params=st.integers(10**6, 10**12), n_layers=st.integers(2, 100),
    n_heads=st.sampled_from([8, 16, 64]), n_kv_heads=st.sampled_from([1, 2, 8]), head_dim=st.sampled_from([64, 128]),
    sliding=st.none() | st.just({"layers": 1, "window": 128}),
    linear=st.none() | st.just({"layers": 1, "state_bytes": 99}))


def test_the_catalogue_is_what_it_promises() -> None:
    assert set(NAMES) == set(PUBLISHED)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_model_has_a_source(name: str) -> None:
    path = Path(hardware_profiles.__file__).parent / "models" / f"{name}.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(data) - {"name", "sources"} == set(data["sources"])
    assert data["name"] == name


@pytest.mark.parametrize("name", NAMES)
def test_parameters_counted_from_shapes_match_the_published_count(name: str) -> None:
    profile = import_config(CONFIGS / f"{name}.json")
    total, active = PUBLISHED[name]
    assert profile.n_params / 1e9 == pytest.approx(total, rel=0.02)
    if active:
        assert profile.n_active_params / 1e9 == pytest.approx(active, rel=0.025)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_is_what_the_import_gives(name: str) -> None:
    imported = import_config(CONFIGS / f"{name}.json")
    assert imported.model_copy(update={"sources": {}}) == MODELS[name].model_copy(update={"sources": {}})


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_a_token_are_the_closed_form(name: str, dtype: str) -> None:
    model, size = MODELS[name], DTYPE_BYTES[dtype]
    if model.mla:
        expected = sizing.mla_bytes_per_token(model.n_layers, 512, 64, size)
    else:
        expected = sizing.kv_bytes_per_token(model.full_layers, model.n_kv_heads, model.head_dim, size)
    assert model.kv_bytes_per_token(dtype) == pytest.approx(expected)


def test_bytes_a_token_of_known_models() -> None:
    known = {"llama-3.1-8b": 131_072, "llama-3.1-70b": 327_680, "llama-3.1-405b": 516_096, "qwen3-32b": 262_144,
             "deepseek-v3": 70_272, "gpt-oss-120b": 36_864, "qwen3-next-80b-a3b": 24_576}
    assert {name: MODELS[name].kv_bytes_per_token("bf16") for name in known} == known


def test_windows_and_states_stop_growing() -> None:
    oss = MODELS["gpt-oss-20b"]
    layer = 2 * 8 * 64 * 2
    assert oss.kv_bytes(100, "bf16") == 24 * 100 * layer
    assert oss.kv_bytes(1000, "bf16") == (12 * 1000 + 12 * 128) * layer
    assert oss.state_bytes("bf16") == 12 * 128 * layer
    hybrid = MODELS["qwen3-next-80b-a3b"]
    state = 36 * (4 * 32 * 128 * 128 + 2 * 3 * 8192)
    assert hybrid.state_bytes("bf16") == hybrid.state_bytes("fp8") == state
    assert hybrid.kv_bytes(1, "bf16") == 24_576 + state
    assert hybrid.kv_bytes(0, "bf16") == 0


@given(geometry, st.integers(0, 10**6), st.integers(0, 10**6))
def test_kv_bytes_never_fall_and_end_as_a_line(model: ModelProfile, tokens: int, more: int) -> None:
    assert model.kv_bytes(tokens, "bf16") <= model.kv_bytes(tokens + more, "bf16")
    if tokens >= 128:
        assert model.kv_bytes(tokens, "bf16") == tokens * model.kv_bytes_per_token("bf16") + model.state_bytes("bf16")


@given(geometry, st.integers(1, 10**5), st.sampled_from([1, 2, 4, 8, 16]))
def test_tensor_parallelism_keeps_total_bytes_until_heads_run_out(model: ModelProfile, tokens: int, tp: int) -> None:
    alone, group = model.kv_bytes(tokens, "bf16"), model.kv_bytes(tokens, "bf16", tp)
    if tp <= model.n_kv_heads:
        assert group == alone
    else:
        states = model.linear.state_bytes if model.linear else 0
        assert group - states == pytest.approx((alone - states) * tp / model.n_kv_heads)


def test_latent_attention_is_held_by_every_gpu() -> None:
    assert MODELS["deepseek-v3"].kv_copies(8) == 8
    assert MODELS["llama-3.1-70b"].kv_copies(8) == 1
    assert MODELS["qwen3-235b-a22b"].kv_copies(8) == 2


def test_experts_set_what_a_step_reads() -> None:
    mixtral = MODELS["mixtral-8x7b"]
    assert mixtral.step_weight_bytes(0, "bf16") == 2 * mixtral.dense_params
    assert mixtral.step_weight_bytes(1, "bf16") == pytest.approx(2 * (mixtral.dense_params + mixtral.routed_params / 4))
    assert mixtral.step_weight_bytes(10_000, "bf16") == pytest.approx(mixtral.weight_bytes("bf16"))
    dense = MODELS["llama-3.1-8b"]
    assert dense.step_weight_bytes(1, "fp8") == dense.n_params
    assert dense.experts_touched(5) == 0


def test_inline_models_need_little() -> None:
    tiny = ModelProfile.model_validate({"n_params": "70.6e9", "n_layers": 80, "n_heads": 64, "n_kv_heads": 8,
                                        "head_dim": 128})
    assert tiny.n_params == tiny.n_active_params == 70_600_000_000
    assert (tiny.d_model, tiny.d_ff) == (8192, 32_768)
    experts = ModelProfile.model_validate({
        "n_params": 1000, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "head_dim": 4,
        "moe": {"experts": 4, "top_k": 1, "layers": 2, "expert_params": 100}})
    assert experts.n_active_params == 400


@pytest.mark.parametrize(("change", "said"), [
    ({"sliding": {"layers": 3, "window": 8}}, "must not exceed n_layers"),
    ({"moe": {"experts": 2, "top_k": 3, "layers": 1, "expert_params": 1}}, "top_k must not exceed"),
    ({"moe": {"experts": 2, "top_k": 1, "layers": 2, "expert_params": 1000}}, "more than n_params"),
    ({"n_active_params": 2000}, "must not exceed n_params"),
    ({"n_layers": 0}, "greater than 0"),
    ({"colour": "blue"}, "Extra inputs"),
])
def test_impossible_models_are_refused(change: dict[str, Any], said: str) -> None:
    base = {"n_params": 1000, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "head_dim": 4}
    with pytest.raises(ValueError, match=said):
        ModelProfile.model_validate(base | change)


def write(folder: Path, data: Any) -> Path:
    path = folder / "config.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


LLAMA: dict[str, Any] = json.loads((CONFIGS / "llama-3.1-8b.json").read_text(encoding="utf-8"))


def test_import_reads_nested_configurations_and_names_by_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    path = write(folder, {"model_type": "some_vlm", "vision_config": {}, "text_config": LLAMA})
    profile = import_config(path)
    assert profile.name == "my-llama"
    assert profile.n_params == MODELS["llama-3.1-8b"].n_params
    assert set(profile.sources) >= {"n_params", "n_layers", "vocab"}
    assert ModelProfile.model_validate(yaml.safe_load(to_yaml(profile))) == profile


def test_import_follows_the_families_defaults(tmp_path: Path) -> None:
    tied = import_config(write(tmp_path, LLAMA | {"tie_word_embeddings": True}))
    assert MODELS["llama-3.1-8b"].n_params - tied.n_params == 128_256 * 4096
    biased = import_config(write(tmp_path, LLAMA | {"model_type": "qwen2", "attention_bias": None}))
    assert biased.n_params - MODELS["llama-3.1-8b"].n_params == 32 * (4096 + 2 * 1024)
    windowed = import_config(write(tmp_path, LLAMA | {"model_type": "mistral", "sliding_window": 4096}))
    assert windowed.sliding is not None
    assert (windowed.sliding.layers, windowed.full_layers) == (32, 0)
    unused = import_config(write(tmp_path, LLAMA | {"model_type": "qwen2", "sliding_window": 4096}))
    assert unused.sliding is None
    mixed = import_config(write(tmp_path, LLAMA | {"sliding_window": 1024, "sliding_window_pattern": 4}))
    assert mixed.full_layers == 8


@pytest.mark.parametrize(("data", "said"), [
    ("{", "config.json:1: not JSON"),
    ([1], "expected a mapping"),
    ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "config.json: hidden_size: missing"),
    ({k: v for k, v in LLAMA.items() if k != "intermediate_size"}, "config.json: intermediate_size: missing"),
    (LLAMA | {"num_attention_heads": "many"}, "num_attention_heads: expected a whole number, not negative (got many)"),
    (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers: must be greater than 0 (got 0)"),
    (LLAMA | {"layer_types": ["full_attention"]}, "layer_types: expected a list of 32 layers"),
    (LLAMA | {"layer_types": ["dreaming"] * 32}, "layer_types: unknown kind of layer"),
    (LLAMA | {"layer_types": ["linear_attention"] * 32}, "linear_num_key_heads: missing"),
    (LLAMA | {"kv_lora_rank": 512}, "qk_nope_head_dim: missing"),
    (LLAMA | {"num_experts": 8}, "num_experts_per_tok: missing"),
])
def test_import_says_in_one_line_what_is_wrong(tmp_path: Path, data: Any, said: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        import_config(path)
    text = str(caught.value)
    assert said in text
    assert str(path) in text
    assert "\n" not in text


def test_import_says_when_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.json: cannot be read: No such file"):
        import_config(tmp_path / "nothing.json")
