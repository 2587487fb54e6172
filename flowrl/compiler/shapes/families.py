"""The families of models: how transformers names and shapes their parameters."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import attrs

from flowrl.compiler.shapes.blocks import (
    Block,
    Kind,
    attention,
    experts,
    gated,
    latent_attention,
    linear,
    norm,
    transposed,
    under,
)
from flowrl.compiler.shapes.dimensions import Dimensions

Layer = Callable[[Dimensions, int], Block]


@attrs.frozen
class Family:
    """One family, by transformers' `model_type`.

    Attributes:
        layer: the parameters of one layer, without its prefix.
        body: the module below the head.
        layers, embedding, positions, final_norm: modules of the body; "" where there is none.
        norm_bias: whether norms have one.
        classifier: the head of a token classification; flowrl's critics have it.
        defaults: of the config, where they aren't obvious.
    """

    layer: Layer
    body: str = "model"
    layers: str = "layers"
    embedding: str = "embed_tokens"
    positions: str = ""
    final_norm: str = "norm"
    norm_bias: bool = False
    classifier: str = "score"
    defaults: Mapping[str, Any] = MappingProxyType({})


NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _llama(
    d: Dimensions, _: int, *, norms: tuple[str, ...] = NORMS, head_norms: bool = False
) -> Block:
    yield from under("self_attn", attention(d, norms=head_norms))
    yield from under("mlp", gated(d.hidden, d.intermediate, bias=d.mlp_bias))
    for name in norms:
        yield from norm(name, d.hidden)


def _phi3(d: Dimensions, _: int) -> Block:
    queries, keys = d.heads * d.head_dim, d.kv_heads * d.head_dim
    yield from linear("self_attn.qkv_proj", Kind.QKV, queries + 2 * keys, d.hidden)
    yield from linear("self_attn.o_proj", Kind.OUTPUT, d.hidden, queries)
    yield from linear("mlp.gate_up_proj", Kind.GATE_UP, 2 * d.intermediate, d.hidden)
    yield from linear("mlp.down_proj", Kind.DOWN, d.hidden, d.intermediate)
    for name in NORMS:
        yield from norm(name, d.hidden)


def _gpt2(d: Dimensions, _: int) -> Block:
    yield from transposed("attn.c_attn", Kind.QKV, 3 * d.hidden, d.hidden)
    yield from transposed("attn.c_proj", Kind.OUTPUT, d.hidden, d.hidden)
    yield from transposed("mlp.c_fc", Kind.UP, d.intermediate, d.hidden)
    yield from transposed("mlp.c_proj", Kind.DOWN, d.hidden, d.intermediate)
    for name in ("ln_1", "ln_2"):
        yield from norm(name, d.hidden, bias=True)


def _gpt_neox(d: Dimensions, _: int) -> Block:
    join, out = "attention.query_key_value", "attention.dense"
    yield from linear(join, Kind.QKV_BY_HEAD, 3 * d.hidden, d.hidden, bias=d.qkv_bias)
    yield from linear(out, Kind.OUTPUT, d.hidden, d.hidden, bias=d.output_bias)
    yield from linear("mlp.dense_h_to_4h", Kind.UP, d.intermediate, d.hidden, bias=True)
    yield from linear("mlp.dense_4h_to_h", Kind.DOWN, d.hidden, d.intermediate, bias=True)
    for name in NORMS:
        yield from norm(name, d.hidden, bias=True)


def _sparse(
    d: Dimensions,
    layer: int,
    *,
    head_norms: bool = False,
    shared: str = "",
    gate: str = "",
) -> Block:
    """A layer of a mixture of experts, `shared` beside them, behind a `gate` if it has one."""
    sparse = d.experts
    assert sparse is not None, "its config has experts"
    seen = latent_attention(d, d.latent) if d.latent else attention(d, norms=head_norms)
    yield from under("self_attn", seen)
    for name in NORMS:
        yield from norm(name, d.hidden)
    if layer in sparse.dense:
        yield from under("mlp", gated(d.hidden, d.intermediate, bias=d.mlp_bias))
        return
    yield from under("mlp", experts(d.hidden, sparse.count, sparse.intermediate))
    if sparse.shared:
        yield from under(f"mlp.{shared}", gated(d.hidden, sparse.shared))
    if sparse.shared and gate:
        yield from linear(f"mlp.{gate}", Kind.SHARED_GATE, 1, d.hidden)


_gemma = partial(_llama, norms=FOUR_NORMS)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": Family(_llama),
        "mistral": Family(_llama),
        "qwen2": Family(_llama, defaults={"qkv_bias": True}),
        "qwen3": Family(partial(_llama, head_norms=True), defaults={"head_dim": 128}),
        "gemma": Family(_llama, defaults={"tie_word_embeddings": True, "head_dim": 256}),
        "gemma2": Family(_gemma, defaults={"tie_word_embeddings": True, "head_dim": 256}),
        "gemma3_text": Family(
            partial(_gemma, head_norms=True),
            defaults={"tie_word_embeddings": True, "head_dim": 256},
        ),
        "phi3": Family(_phi3),
        "gpt2": Family(
            _gpt2,
            body="transformer",
            layers="h",
            embedding="wte",
            positions="wpe",
            final_norm="ln_f",
            norm_bias=True,
            classifier="classifier",
            defaults={"tie_word_embeddings": True},
        ),
        "gpt_neox": Family(
            _gpt_neox,
            body="gpt_neox",
            embedding="embed_in",
            final_norm="final_layer_norm",
            norm_bias=True,
            classifier="classifier",
            defaults={"attention_bias": True},
        ),
        "mixtral": Family(_sparse),
        "qwen2_moe": Family(
            partial(_sparse, shared="shared_expert", gate="shared_expert_gate"),
            defaults={"qkv_bias": True},
        ),
        "qwen3_moe": Family(partial(_sparse, head_norms=True)),
        "deepseek_v2": Family(partial(_sparse, shared="shared_experts")),
        "deepseek_v3": Family(partial(_sparse, shared="shared_experts")),
    }
)
"""The families that the planner knows."""
