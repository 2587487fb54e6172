"""Log-probabilities of tokens under logits, at a temperature."""

import torch
from torch import Tensor


def log_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return f32[..., vocab], the natural logs of softmax(logits / temperature).

    Raises:
        ValueError: the temperature isn't above 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0; got {temperature}")
    return (logits / temperature).log_softmax(-1)


def token_logprobs(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the log-probability of each token under the logits at its own position.

    Args:
        logits: f32[..., vocab].
        tokens: i64[...], ids below `vocab`.
        temperature: > 0.

    Returns:
        f32[...], in nats.
    """
    return log_softmax(logits, temperature).gather(-1, tokens[..., None]).squeeze(-1)


def response_logprobs(
    logits: Tensor, ids: Tensor, start: Tensor, counts: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """Return the log-probabilities of the response inside each sequence.

    The token at position j is scored by the logits at j - 1, which have read all before it.

    Args:
        logits: f32[row, position, vocab].
        ids: i64[row, position], prompt, response and padding.
        start: i64[row], the position of the first response token; at least 1.
        counts: i64[row], response tokens.
        temperature: > 0.

    Returns:
        f32[row, longest response], in nats, 0 after a response's end.

    Raises:
        ValueError: a response starts at 0, where nothing was read, or ends after its row.
    """
    width = ids.shape[-1]
    if bool((start < 1).any()) or bool((start + counts > width).any()):
        raise ValueError(
            f"responses must lie in positions 1 to {width - 1}; got {start=} {counts=}"
        )
    step = torch.arange(int(counts.max()) if len(counts) else 0, device=ids.device)
    inside = step < counts[:, None]
    position = (start[:, None] + step).clamp(max=width - 1)
    before = (position - 1)[..., None].expand(-1, -1, logits.shape[-1])
    scored = token_logprobs(
        logits.gather(1, before), ids.gather(1, position), temperature=temperature
    )
    return torch.where(inside, scored, 0.0)
