"""The planner's parameters of each family are those of transformers' own model."""

import pytest
import torch
from inline_snapshot import snapshot
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from flowrl.compiler.shapes import ModelShape, Parameter, ParameterKind
from flowrl.compiler.shapes.families import FAMILIES
from flowrl.errors import EngineError
from flowrl.runtime.model.narrow import narrow_linear
from flowrl.runtime.model.value_head import add_value_head

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "pad_token_id": 0,
}
GPT2 = {"vocab_size": 96, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 32}
SPARSE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
}
OWN = {
    "phi3": {"head_dim": 16},
    "mixtral": {"num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen2_moe": SPARSE | {"shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
    "qwen3_moe": SPARSE | {"mlp_only_layers": [0]},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT | {"n_group": 2, "topk_group": 1},
}
VARIANTS = [
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"attention_bias": True}),
    ("gemma", {"tie_word_embeddings": False}),
    ("gpt_neox", {"attention_bias": False}),
    ("deepseek_v2", {"q_lora_rank": None}),
    ("deepseek_v3", {"attention_bias": True}),
]
CASES = [(family, {}) for family in FAMILIES] + VARIANTS


def config_of(family, changed=()):
    sizes = GPT2 if family == "gpt2" else SIZES
    if family == "gpt_neox":
        sizes = {k: v for k, v in sizes.items() if k not in ("head_dim", "num_key_value_heads")}
    if family.startswith("deepseek"):
        sizes = {k: v for k, v in sizes.items() if k != "head_dim"}
    return AutoConfig.for_model(family, **sizes | OWN.get(family, {}) | dict(changed))


def on_meta(kind, config):
    """Return a model without storage, or None if transformers has no such head for the family."""
    if type(config) not in kind._model_mapping:
        return None
    with torch.device("meta"):
        return kind.from_config(config)


def shapes_of(model):
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def planned(config, head):
    return {p.name: p.shape for p in ModelShape.from_config(config.to_dict(), head).parameters()}


@pytest.mark.parametrize(("family", "changed"), CASES)
def test_language_models_are_those_of_transformers(family, changed):
    config = config_of(family, changed)
    real = on_meta(AutoModelForCausalLM, config)

    assert planned(config, "lm") == shapes_of(real)
    assert ModelShape.from_config(config.to_dict()).count == real.num_parameters()


@pytest.mark.parametrize(("family", "changed"), CASES)
def test_linear_layers_have_what_a_frozen_model_holds_narrow(family, changed):
    config = config_of(family, changed)
    real = on_meta(AutoModelForCausalLM, config)

    narrow_linear(real)

    narrow = {name for name, x in real.named_parameters() if x.dtype == torch.bfloat16}
    parameters = ModelShape.from_config(config.to_dict()).parameters()
    assert narrow == {parameter.name for parameter in parameters if parameter.is_linear}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("value", AutoModelForTokenClassification),
        ("token_reward", AutoModelForTokenClassification),
        ("reward", AutoModelForSequenceClassification),
    ],
)
def test_critics_and_reward_models_are_those_of_transformers(family, head, kind):
    config = config_of(family)
    config.num_labels, config.classifier_dropout = 1, 0.0
    real = on_meta(kind, config)

    if real is not None:
        assert planned(config, head) == shapes_of(real)


def test_a_policy_that_is_its_own_critic_has_both_heads(tmp_path):
    config = config_of("llama")
    real = on_meta(AutoModelForCausalLM, config)
    with torch.device("meta"):
        add_value_head(real, tmp_path)

    assert planned(config, "lm+value") == shapes_of(real)


@pytest.mark.parametrize("family", FAMILIES)
def test_dims_say_where_matrices_are_split(family):
    for parameter in ModelShape.from_config(config_of(family).to_dict()).parameters():
        dims = [d for d in (parameter.experts, parameter.output, parameter.input) if d is not None]
        assert len(set(dims)) == len(dims)
        norm = parameter.kind is ParameterKind.NORM
        assert sorted(dims) == ([] if norm else list(range(len(parameter.shape))))


def test_a_tied_embedding_says_so_and_no_head_is_listed():
    parameters = ModelShape.from_config(config_of("gemma").to_dict()).parameters()

    assert [p for p in parameters if p.tied] == [
        Parameter(
            "model.embed_tokens.weight",
            (96, 64),
            ParameterKind.EMBEDDING,
            output=0,
            input=1,
            tied=True,
        )
    ]
    assert not [p for p in parameters if p.kind is ParameterKind.HEAD]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "lama"},
            snapshot("""\
the planner knows no models of type `lama` (did you mean `llama`?)
help: it knows llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, phi3, gpt2, gpt_neox, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3\
"""),
        ),
        (
            {},
            snapshot("""\
the planner knows no models of type `None`
help: it knows llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, phi3, gpt2, gpt_neox, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3\
"""),
        ),
        (
            {"model_type": "llama", "hidden_size": 64},
            snapshot("""\
a `llama` config needs `num_attention_heads`, a positive whole number; got None
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"vocab_size": "many"},
            snapshot("""\
a `llama` config needs `vocab_size`, a positive whole number; got 'many'
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"num_key_value_heads": 0},
            snapshot("""\
a `llama` config needs `num_key_value_heads`, a positive whole number; got 0
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"num_key_value_heads": 3},
            snapshot("""\
a `llama` config shares 3 key heads among 4 heads, unequally
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"head_dim": "64"},
            snapshot("""\
a `llama` config needs `head_dim`, a positive whole number; got '64'
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"intermediate_size": -4},
            snapshot("""\
a `llama` config needs `intermediate_size`, a positive whole number; got -4
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("llama").to_dict() | {"max_position_embeddings": -1},
            snapshot("""\
a `llama` config needs `max_position_embeddings`, a whole number that is not negative; got -1
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("mixtral").to_dict() | {"num_experts_per_tok": 9},
            snapshot("""\
a `mixtral` config sends each token to 9 of 6 experts
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
        (
            config_of("qwen3_moe").to_dict() | {"decoder_sparse_step": 0},
            snapshot("""\
a `qwen3_moe` config needs `decoder_sparse_step`, a positive whole number; got 0
help: give the config.json that `save_pretrained` wrote beside the weights\
"""),
        ),
    ],
)
def test_a_config_that_says_too_little_or_nonsense_is_refused(config, message):
    with pytest.raises(EngineError) as error:
        ModelShape.from_config(config)

    assert str(error.value) == message


@pytest.mark.parametrize(("family", "changed"), CASES)
def test_the_file_that_transformers_saves_is_enough(family, changed, tmp_path):
    config = config_of(family, changed)
    config.save_pretrained(tmp_path)

    assert ModelShape.from_folder(tmp_path) == ModelShape.from_config(config.to_dict())
