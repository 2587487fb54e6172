"""What a token costs, by hand and against published numbers."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.shapes import KNOWN, ModelShape, known_shape
from flowrl.errors import EngineError

PUBLISHED = {
    "qwen2.5-0.5b": 0.494e9,
    "qwen2.5-1.5b": 1.54e9,
    "qwen2.5-7b": 7.62e9,
    "qwen2.5-72b": 72.7e9,
    "llama-2-7b": 6.74e9,
    "llama-2-13b": 13.02e9,
    "llama-2-70b": 68.98e9,
    "llama-3.1-8b": 8.03e9,
    "llama-3.1-70b": 70.55e9,
    "codellama-34b": 33.74e9,
    "mixtral-8x7b": 46.7e9,
    "qwen3-30b-a3b": 30.5e9,
    "smollm2-135m": 134.5e6,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_models_have_the_parameters_that_their_cards_say(name):
    assert known_shape(name).count == pytest.approx(PUBLISHED[name], rel=3e-3)


@pytest.mark.parametrize(
    ("name", "active"), [("mixtral-8x7b", 12.9e9), ("qwen3-30b-a3b", 3.3e9), ("qwen2.5-7b", 7.62e9)]
)
def test_of_a_mixture_a_token_goes_through_few_parameters(name, active):
    shape = known_shape(name)

    multiplied = shape.flops_per_token(0) / 2

    assert multiplied + shape.vocab * shape.hidden == pytest.approx(active, rel=2e-2)


def test_every_known_model_is_read():
    for name in KNOWN:
        assert known_shape(name, "value").count < known_shape(name).count * 1.01


def test_a_model_is_known_by_its_name_on_the_hub_too():
    assert known_shape("Qwen/Qwen2.5-7B-Instruct") == known_shape("qwen2.5-7b")
    assert known_shape("meta-llama/Llama-2-7b-hf") == known_shape("llama-2-7b")


def test_an_unknown_name_is_refused():
    with pytest.raises(EngineError) as error:
        known_shape("qwen2.5-8b")

    assert str(error.value) == snapshot("""\
the planner has no sizes of `qwen2.5-8b` (did you mean `qwen2.5-7b`?)
help: give a folder with its config.json, or one of qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen2.5-32b, qwen2.5-72b, qwen3-8b, qwen3-30b-a3b, llama-2-7b, llama-2-13b, codellama-34b, llama-2-70b, llama-3.1-8b, llama-3.1-70b, mistral-7b, mixtral-8x7b, smollm2-135m\
""")


def test_the_cache_of_a_token_is_keys_and_values_of_every_layer():
    assert known_shape("qwen2.5-1.5b").kv_bytes_per_token() == 28 * 2 * 2 * 128 * 2
    assert known_shape("llama-2-7b").kv_bytes_per_token(1) == 32 * 2 * 32 * 128


def test_latent_attention_caches_its_low_rank_state():
    latent = {
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    sizes = {"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
    shape = ModelShape.from_config(
        dict(KNOWN["llama-2-7b"]) | {"model_type": "deepseek_v3"} | latent | sizes
    )

    assert shape.kv_bytes_per_token() == 32 * (512 + 64) * 2
    assert shape.attention_flops == 2 * 32 * 32 * (192 + 128)


def test_a_forward_pass_is_two_operations_a_weight_and_four_a_position_and_width():
    shape = known_shape("llama-2-7b")
    matrices = shape.count - 32000 * 4096 - 65 * 4096  # but for embedding and norms

    assert shape.flops_per_token(0) == 2 * matrices
    assert shape.flops_per_token(10) - shape.flops_per_token(0) == 10 * 4 * 32 * 4096
    assert shape.flops_per_token(0) - shape.flops_per_token(0, head=False) == 2 * 32000 * 4096


def test_a_tied_head_is_multiplied_like_any_other():
    assert known_shape("smollm2-135m").head_flops == 2 * 49152 * 576


def test_a_critic_has_a_head_of_one_number():
    assert known_shape("smollm2-135m", "value").head_flops == 2 * 576


def test_a_shape_is_read_from_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(dict(KNOWN["qwen2.5-7b"])))

    assert ModelShape.from_folder(tmp_path) == known_shape("qwen2.5-7b")


@pytest.mark.parametrize("content", [None, "{"])
def test_a_folder_without_a_config_is_refused(tmp_path, content):
    if content:
        (tmp_path / "config.json").write_text(content)

    with pytest.raises(EngineError, match=r"config\.json` cannot be read"):
        ModelShape.from_folder(tmp_path)


@pytest.mark.parametrize("content", ["null", "[1, 2]"])
def test_a_file_that_holds_no_table_is_no_config(tmp_path, content):
    (tmp_path / "config.json").write_text(content)

    with pytest.raises(EngineError, match=r"config\.json` holds no config: got"):
        ModelShape.from_folder(tmp_path)
