"""Sizes of well-known models, from their published config.json, for planning without a folder."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from flowrl.compiler.shapes.model_shape import ModelShape
from flowrl.errors import EngineError, nearest
from flowrl.ops.model import Head

Row = tuple[str, int, int, int, int, int, int, Mapping[str, Any]]

_ROWS: Mapping[str, Row] = {
    # family, layers, hidden, heads, kv heads, intermediate, vocabulary, what else differs
    "qwen2.5-0.5b": ("qwen2", 24, 896, 14, 2, 4864, 151936, {"tie_word_embeddings": True}),
    "qwen2.5-1.5b": ("qwen2", 28, 1536, 12, 2, 8960, 151936, {"tie_word_embeddings": True}),
    "qwen2.5-3b": ("qwen2", 36, 2048, 16, 2, 11008, 151936, {"tie_word_embeddings": True}),
    "qwen2.5-7b": ("qwen2", 28, 3584, 28, 4, 18944, 152064, {}),
    "qwen2.5-14b": ("qwen2", 48, 5120, 40, 8, 13824, 152064, {}),
    "qwen2.5-32b": ("qwen2", 64, 5120, 40, 8, 27648, 152064, {}),
    "qwen2.5-72b": ("qwen2", 80, 8192, 64, 8, 29568, 152064, {}),
    "qwen3-8b": ("qwen3", 36, 4096, 32, 8, 12288, 151936, {}),
    "qwen3-30b-a3b": (
        *("qwen3_moe", 48, 2048, 32, 4, 6144, 151936),
        {
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "llama-2-7b": ("llama", 32, 4096, 32, 32, 11008, 32000, {}),
    "llama-2-13b": ("llama", 40, 5120, 40, 40, 13824, 32000, {}),
    "codellama-34b": ("llama", 48, 8192, 64, 8, 22016, 32000, {}),
    "llama-2-70b": ("llama", 80, 8192, 64, 8, 28672, 32000, {}),
    "llama-3.1-8b": ("llama", 32, 4096, 32, 8, 14336, 128256, {}),
    "llama-3.1-70b": ("llama", 80, 8192, 64, 8, 28672, 128256, {}),
    "mistral-7b": ("mistral", 32, 4096, 32, 8, 14336, 32000, {}),
    "mixtral-8x7b": (
        *("mixtral", 32, 4096, 32, 8, 14336, 32000),
        {"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "smollm2-135m": ("llama", 30, 576, 9, 3, 1536, 49152, {"tie_word_embeddings": True}),
}

KEYS = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)

KNOWN: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {name: dict(zip(KEYS, row[:-1], strict=True)) | dict(row[-1]) for name, row in _ROWS.items()}
)
"""Configs by short name."""

VARIANTS = ("-instruct", "-chat", "-hf", "-base", "-v0.1")


def known_shape(name: str, head: Head = "lm") -> ModelShape:
    """Return the shape of a well-known model: `qwen2.5-7b`, or `Qwen/Qwen2.5-7B-Instruct`.

    Raises:
        EngineError: it is not in the table.
    """
    short = name.rpartition("/")[2].lower()
    for variant in VARIANTS:
        short = short.removesuffix(variant)
    if short not in KNOWN:
        raise EngineError(
            f"the planner has no sizes of `{name}`{nearest(short, KNOWN)}",
            hint=f"give a folder with its config.json, or one of {', '.join(KNOWN)}",
        )
    return ModelShape.from_config(KNOWN[short], head)
