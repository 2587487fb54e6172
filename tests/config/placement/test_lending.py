"""Why an engine lends a trainer nothing, as its run file and its model's folder say."""

import json

import pytest

from flowrl.compiler.shapes import ModelShape
from flowrl.config.placement.lending import unlent
from flowrl.config.traced import trace_run
from flowrl.runtime import known_engines
from flowrl.runtime.known_engines import FACTS, GENERATORS, Facts

VLLM = '[engines.policy.generate]\nengine = "vllm"\n'
LORA = "[models.policy.lora]\nrank = 4\n"
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 63}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": 64}
LLAMA = SIZES | {"model_type": "llama"}
GPT2 = SIZES | {"model_type": "gpt2", "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.fixture
def reason(load):
    """Return a function that says why the policy's engine lends a trainer nothing."""

    def reason(text, config):
        run = load(text)
        folder = run.resolve("model")
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        shape = ModelShape.from_config(config)
        return unlent(run, trace_run(run).graph, "policy", shape)

    return reason


@pytest.mark.parametrize(
    ("text", "config", "why"),
    [
        (LORA, LLAMA, "only its adapter trains and is sent"),
        ("", LLAMA | {"quantization_config": {"bits": 4}}, "its weights are quantised"),
        (VLLM, GPT2, "vLLM has `transformer.h.0.attn.c_attn.weight` transposed"),
        (
            VLLM,
            SIZES | {"model_type": "gpt_neox"},
            "vLLM has the rows of `gpt_neox.layers.0.attention.query_key_value.weight` in another "
            "order",
        ),
        (
            VLLM,
            SIZES | EXPERTS | {"model_type": "mixtral"},
            "vLLM has `model.layers.0.mlp.experts.gate_up_proj` among experts of its own form",
        ),
    ],
)
def test_what_an_engine_can_not_lend_has_a_reason(text, config, why, reason):
    assert reason(text, config) == why


@pytest.mark.parametrize("text", ["", VLLM])
@pytest.mark.parametrize("tied", [False, True])
def test_joined_padded_and_tied_weights_are_lent(text, tied, reason):
    assert not reason(text, LLAMA | {"tie_word_embeddings": tied})


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_transformers_own_engine_lends_weights_of_any_form(family, reason):
    assert not reason("", GPT2 | {"model_type": family})


def test_an_engine_that_lends_nothing_is_named(monkeypatch, reason):
    monkeypatch.setitem(known_engines.GENERATORS, "other", "a.module:Class")
    monkeypatch.setattr("flowrl.config.tables.engines.FACTS", FACTS | {"other": Facts("Other")})

    why = reason('[engines.policy.generate]\nengine = "other"\n', LLAMA)

    assert why == "the engine `other` lends none"


def test_every_engine_that_samples_has_its_facts():
    assert FACTS.keys() == GENERATORS.keys()
