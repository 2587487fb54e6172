"""The sizes of a transformers model, from its config.json."""

from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.errors import EngineError

ALIASES = {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "qkv_bias": ("qkv_bias", "attention_bias"),
}
"""What families call the same thing."""


@attrs.frozen
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, sec. 2.1): sizes a head."""

    kv_rank: int
    query_rank: int | None
    nope: int
    rope: int
    value: int


@attrs.frozen
class Experts:
    """The sparse layers of a mixture of experts.

    Attributes:
        count: experts a layer.
        per_token: how many of them a token goes through.
        intermediate: the inner size of one.
        shared: the inner size of what every token goes through; 0 for none.
        dense: layers without experts.
    """

    count: int
    per_token: int
    intermediate: int
    shared: int = 0
    dense: frozenset[int] = frozenset()


@attrs.frozen
class Dimensions:
    """Sizes by name; `attention_bias` stands for query, key and value, `output_bias` for output."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    positions: int
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    experts: Experts | None = None
    latent: Latent | None = None


@attrs.frozen
class Config:
    """A config.json with the names of all families and the defaults of its own."""

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def get(self, key: str, otherwise: Any = None) -> Any:
        """Return a value that may be missing or null."""
        for source in (self.values, self.defaults):
            for name in ALIASES.get(key, (key,)):
                if source.get(name) is not None:
                    return source[name]
        return otherwise

    def need(self, key: str, otherwise: int | None = None, least: int = 1) -> int:
        """Return a whole number of at least `least`; `otherwise` if it is missing.

        Raises:
            EngineError: it is missing without an `otherwise`, or another kind of value.
        """
        value = self.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            wanted = "a positive whole number" if least else "a whole number that is not negative"
            raise self.error(f"needs `{key}`, {wanted}; got {value!r}")
        return value

    def error(self, what: str) -> EngineError:
        """Return the error of a config that is none of a model."""
        return EngineError(
            f"a `{self.values['model_type']}` config {what}",
            hint="give the config.json that `save_pretrained` wrote beside the weights",
        )


def read_dimensions(config: Config) -> Dimensions:
    """Read the sizes that every family has, and those of experts and latent attention if any."""
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    kv_heads = config.need("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error(f"shares {kv_heads} key heads among {heads} heads, unequally")
    attention_bias = bool(config.get("attention_bias"))
    return Dimensions(
        layers=config.need("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=config.need("head_dim", hidden // heads),
        intermediate=config.need("intermediate_size", 4 * hidden),
        vocab=config.need("vocab_size"),
        positions=config.need("max_position_embeddings", 0, least=0),
        tied=bool(config.get("tie_word_embeddings")),
        qkv_bias=bool(config.get("qkv_bias")),
        output_bias=bool(config.get("output_bias", attention_bias)),
        mlp_bias=bool(config.get("mlp_bias")),
        experts=_experts(config) if config.get("num_experts") else None,
        latent=_latent(config) if config.get("kv_lora_rank") else None,
    )


def _latent(config: Config) -> Latent:
    return Latent(
        kv_rank=config.need("kv_lora_rank"),
        query_rank=config.get("q_lora_rank"),
        nope=config.need("qk_nope_head_dim"),
        rope=config.need("qk_rope_head_dim"),
        value=config.need("v_head_dim"),
    )


def _experts(config: Config) -> Experts:
    layers, step = config.need("num_hidden_layers"), config.need("decoder_sparse_step", 1)
    first = config.need("first_k_dense_replace", 0, least=0)
    only = set(config.get("mlp_only_layers", ()))
    inner = config.need("moe_intermediate_size", config.get("intermediate_size"))
    shared = config.need("shared_expert_intermediate_size", 0, least=0)
    count, per_token = config.need("num_experts"), config.need("num_experts_per_tok")
    if per_token > count:
        raise config.error(f"sends each token to {per_token} of {count} experts")
    return Experts(
        count=count,
        per_token=per_token,
        intermediate=inner,
        shared=shared or inner * config.need("n_shared_experts", 0, least=0),
        dense=frozenset(
            i
            for i in range(layers)
            if i < first or i in only or (i + 1) % step  # as transformers
        ),
    )
