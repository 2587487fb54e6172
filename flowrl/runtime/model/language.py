"""What a language model says of tokens: its logits, never those of all tokens at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from flowrl.runtime.engine import Outputs

LANGUAGE = ("logprobs", "entropy", "collision")

HEAD_TOKENS = 4096
"""Tokens whose logits exist at once."""


def language_outputs(
    model: nn.Module,
    inputs: dict[str, Any],
    places: Tensor,
    last: Tensor,
    tokens: Tensor,
    outputs: Sequence[str],
    temperature: float,
    compiled: bool = False,
) -> Outputs:
    """Return a language model's outputs, and its value head's, of one forward.

    The model's forward makes the logits, with its scaling and capping; only its head sees less:
    nothing, if no output is of the logits. Of many tokens it sees some after the other, and again
    in their backward.

    Args:
        model: a language model.
        inputs: what its forward takes.
        places: i64[token], where the flattened lines predict each token.
        last: i64[row], where they have each row's last token.
        tokens: i64[token].
        outputs: names.
        temperature: of the softmax.
        compiled: whether what is read of logits is computed by code that torch has compiled.
    """
    spoken = [name for name in outputs if name in LANGUAGE]
    read_at = torch.cat([places, last]) if "end_values" in outputs else places
    shown = len(tokens) if spoken and len(tokens) <= HEAD_TOKENS else 0
    head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]
    with head_reads(head, read_at, shown) as read, backbone_of(model) as backbone:
        logits = model(**inputs).logits[0]
    made: Outputs = {}
    reads = compiled_outputs() if compiled else token_outputs
    if shown:
        made = reads(logits, tokens, spoken, temperature)
    elif spoken:

        def said(states: Tensor, tokens: Tensor) -> Outputs:
            return reads(logits_at(model, backbone[-1], states), tokens, spoken, temperature)

        made = in_chunks(said, read[0][: len(tokens)], tokens)
    if "values" in outputs or "end_values" in outputs:
        numbers = full_precision(model.value_head(read[0]))[:, 0]  # type: ignore[operator]
        values = {"values": numbers[: len(tokens)], "end_values": numbers[len(tokens) :]}
        made |= {name: x for name, x in values.items() if name in outputs}
    return made


Backbone = tuple[nn.Module, Any]
"""What a language model calls for the states of its last layer, and what that has returned."""


@contextmanager
def backbone_of(model: nn.Module) -> Iterator[list[Backbone]]:
    """Yield a list that gets what returns inside of a forward: the backbone is its last entry."""
    found: list[Backbone] = []
    inner = [m for m in model.modules() if isinstance(m, PreTrainedModel) and m is not model]
    hooks = [m.register_forward_hook(lambda m, _, out: found.append((m, out))) for m in inner]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def logits_at(model: nn.Module, backbone: Backbone, states: Tensor) -> Tensor:
    """Return f[token, vocab], what a model's forward makes of f[token, hidden], its last states."""
    module, said = backbone
    given = type(said)(**{**said, "last_hidden_state": states[None]})
    module.forward = lambda *_, **__: given
    try:
        nothing = torch.zeros(1, len(states), dtype=torch.int64, device=states.device)
        logits: Tensor = model(input_ids=nothing, use_cache=False).logits[0]
        return logits
    finally:
        del module.forward


def in_chunks(said: Callable[[Tensor, Tensor], Outputs], states: Tensor, tokens: Tensor) -> Outputs:
    """Return what is said of tokens, a chunk at a time, and again in their backward.

    Args:
        said: returns outputs of f[token, hidden], the states where tokens are predicted, and the
            tokens; it makes their logits.
        states: f[token, hidden], of the last layer.
        tokens: i64[token].
    """
    pairs = zip(states.split(HEAD_TOKENS), tokens.split(HEAD_TOKENS), strict=True)
    parts = [checkpoint(said, *p, use_reentrant=False, preserve_rng_state=False) for p in pairs]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


@contextmanager
def head_reads(head: nn.Module, places: Tensor, shown: int) -> Iterator[list[Tensor]]:
    """Let `head` see only the first `shown` of some places of states [line, position, hidden].

    Yields:
        A list that gets f[place, hidden], the states at these places.
    """
    read: list[Tensor] = []

    def choose(_: nn.Module, arguments: tuple[Tensor]) -> Tensor:
        states = arguments[0].flatten(0, 1)[places]
        read.append(states)
        return states[:shown][None]

    hook = head.register_forward_pre_hook(choose)
    try:
        yield read
    finally:
        hook.remove()


def token_outputs(
    logits: Tensor, tokens: Tensor, outputs: Sequence[str], temperature: float
) -> Outputs:
    """Return `logprobs`, `entropy` and `collision` of softmax(logits / temperature)."""
    logits = full_precision(logits)
    log_p = torch.log_softmax(logits if temperature == 1 else logits / temperature, -1)
    made = {"logprobs": log_p.gather(-1, tokens[:, None])[:, 0]}
    if "entropy" in outputs:
        least = torch.finfo(log_p.dtype).min  # of a token that can't be drawn: 0 * -inf is NaN
        made["entropy"] = -(log_p.exp() * log_p.clamp(min=least)).sum(-1)
    if "collision" in outputs:
        made["collision"] = (2 * log_p).exp().sum(-1)
    return {name: made[name] for name in outputs}


@cache
def compiled_outputs() -> Callable[..., Outputs]:
    """Return `token_outputs`, compiled: it reads narrow logits and writes none."""
    return torch.compile(token_outputs, dynamic=True)


def full_precision(tensor: Tensor) -> Tensor:
    """Return float64 as it is and all else as float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
