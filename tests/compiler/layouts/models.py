"""Small models of many families, and shardings of them drawn at random."""

import attrs
from hypothesis import strategies as st

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage, misfit
from flowrl.compiler.shapes import ModelShape
from flowrl.ir.layout import AXES, Layout

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 3,
    "intermediate_size": 20,
    "vocab_size": 37,
    "max_position_embeddings": 5,
}
TIED = {"tie_word_embeddings": True}
SPARSE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
LATENT = {
    "kv_lora_rank": 3,
    "q_lora_rank": 4,
    "qk_nope_head_dim": 2,
    "qk_rope_head_dim": 1,
    "v_head_dim": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 4,
    "first_k_dense_replace": 1,
}
FAMILIES = {
    "llama": {"num_hidden_layers": 3, "mlp_bias": True},
    "qwen2": TIED,
    "qwen3": {"num_key_value_heads": 1},
    "gpt2": {"num_key_value_heads": 4},
    "gpt_neox": {"num_key_value_heads": 4},
    "phi3": {},
    "qwen3_moe": SPARSE,
    "deepseek_v3": LATENT | {"num_key_value_heads": 4},
}


def small(family, head="lm", **sizes):
    """A model of a family, a few thousand numbers large."""
    return ModelShape.from_config(
        {"model_type": family} | SIZES | FAMILIES.get(family, {}) | sizes, head
    )


def placed(layout, first=0, **how):
    """A layout on consecutive ranks."""
    parsed = Layout.parse(layout)
    return Sharding(parsed, range(first, first + parsed.size), **how)


MODELS = [small(family) for family in FAMILIES] + [
    small("llama", "value"),
    small("qwen2", "lm+value"),
]
MACHINES = [Machines.parse(text) for text in ("2x8xH100", "4x4xL40S", "8xH100 + 2x4xA10")]

models = st.sampled_from(MODELS)
machines = st.sampled_from(MACHINES)


@st.composite
def layouts(draw, shape):
    """A layout of at most 12 ranks that a model can have."""
    found = Layout(along_tp=draw(st.booleans()), whole_experts=draw(st.booleans()))
    for factor in draw(st.sampled_from([(), (2,), (5,), (2, 2), (2, 3), (2, 2, 2), (2, 2, 3)])):
        grown = [attrs.evolve(found, **{axis: found.axes[axis] * factor}) for axis in AXES]
        found = draw(st.sampled_from([layout for layout in grown if not misfit(shape, layout)]))
    return found


@st.composite
def shardings(draw, shape, size=16):
    """A sharding of a model on some of `size` ranks, in any order."""
    layout = draw(layouts(shape).filter(lambda layout: layout.size <= size))
    ranks = draw(st.permutations(range(size)))[: layout.size]
    storage, element_bytes = draw(st.sampled_from(Storage)), draw(st.sampled_from([2, 4]))
    return Sharding(layout, ranks, storage, element_bytes)
