"""What every engine that samples refuses, in the same words."""

import math
from collections.abc import Sequence
from typing import Any

from flowrl.errors import EngineError
from flowrl.runtime.engine import Request, Sampling


def check_sampling(sampling: Sampling, vocabulary: int) -> None:
    """Refuse settings that describe no distribution.

    Args:
        sampling: as it was asked for.
        vocabulary: how many tokens the model knows.

    Raises:
        EngineError: naming the setting, what it must be and what came.
    """
    known = all(0 <= token < vocabulary for token in sampling.stop_tokens)
    limit = f"between 0 and max_tokens ({sampling.max_tokens})"
    rules = (
        ("temperature", 0 <= sampling.temperature < math.inf, "at least 0"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k >= 0, "at least 0"),
        ("max_tokens", sampling.max_tokens >= 1, "at least 1"),
        ("min_tokens", 0 <= sampling.min_tokens <= sampling.max_tokens, limit),
        ("stop", all(sampling.stop), "strings that are not empty"),
        ("stop_tokens", known, f"tokens that the model knows, 0 to {vocabulary - 1}"),
    )
    for name, holds, expected in rules:
        if not holds:
            raise EngineError(f"`{name}` must be {expected}; got {getattr(sampling, name)!r}")


def limits_of(config: Any) -> tuple[int, float]:
    """Return how many tokens a transformers model knows, and how many positions it has."""
    text = config.get_text_config()
    return text.vocab_size, getattr(text, "max_position_embeddings", None) or math.inf


def check_prompts(
    requests: Sequence[Request], sampling: Sampling, vocabulary: int, positions: float
) -> None:
    """Refuse prompts that the model cannot read.

    Args:
        requests: one block.
        sampling: says how many tokens may follow.
        vocabulary: how many tokens the model knows.
        positions: how many tokens, prompt and completion, it reads.

    Raises:
        EngineError: a prompt is empty, too long or not of this vocabulary.
    """
    room = positions - sampling.max_tokens
    for number, request in enumerate(requests):
        where, length = f"prompt {number} of the block", len(request.prompt)
        if not length:
            raise EngineError(f"{where} is empty", hint="begin prompts with a token, such as BOS")
        if length > room:
            raise EngineError(
                f"{where} has {length} tokens; the model's {positions} positions leave {room} "
                f"beside max_tokens = {sampling.max_tokens}",
                hint="drop long prompts or lower max_tokens",
            )
        if not 0 <= min(request.prompt) <= max(request.prompt) < vocabulary:
            raise EngineError(
                f"{where} has token ids from {min(request.prompt)} to {max(request.prompt)}; "
                f"the model knows 0 to {vocabulary - 1}",
                hint="use the tokenizer that belongs to the model",
            )


def broken(path: str, version: int) -> EngineError:
    """Return the error of a model whose logits are not finite."""
    return EngineError(
        f"version {version} of {path} gives logits that are not finite",
        hint="go back to a checkpoint; lower learning_rate, or take another dtype",
    )
