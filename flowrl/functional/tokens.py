"""Which tokens are trained, and what a conversation of several turns is in tokens."""

from collections.abc import Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor


def loss_mask(
    tokens: Tensor,
    counts: Tensor,
    hit_limit: Tensor,
    *,
    eos_ids: Sequence[int],
    mask_truncated: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what of each generation is trained: up to and with its first end of sequence.

    Args:
        tokens: i64[row, token], padded on the right with anything.
        counts: i64[row], tokens that were generated.
        hit_limit: bool[row], whether the engine stopped at the length limit.
        eos_ids: ids that end a sequence; without one all generated tokens are trained.
        mask_truncated: train nothing of a row that was cut off.

    Returns:
        mask: bool[row, token].
        truncated: bool[row], stopped at the limit, without an end of sequence.
        lengths: i64[row], tokens up to and with the first end; not changed by `mask_truncated`.
    """
    position = torch.arange(tokens.shape[-1], device=tokens.device)
    generated = position < counts[:, None]
    ends = torch.isin(tokens, torch.as_tensor(eos_ids, device=tokens.device)) & generated
    mask = generated & (ends.cumsum(-1) - ends.to(torch.int64) == 0)
    lengths = mask.sum(-1)
    truncated = hit_limit & ~ends.any(-1)
    if mask_truncated:
        mask = mask & ~truncated[:, None]
    return mask, truncated, lengths


@attrs.frozen
class Turn:
    """What one side said. `logprobs` are of the policy that sampled; only assistants have them."""

    role: Literal["system", "user", "tool", "assistant"]
    ids: list[int]
    logprobs: list[float] | None = None


@attrs.frozen
class Conversation:
    """A conversation as one sequence.

    Attributes:
        ids: all tokens.
        loss_mask: True on assistant tokens.
        logprobs: of each token, in nats; 0.0 on those that aren't the assistant's.
        prompts_sent: what the model had read before each assistant turn.
    """

    ids: list[int]
    loss_mask: list[bool]
    logprobs: list[float]
    prompts_sent: list[list[int]]


def assemble_multiturn(prompt_ids: Sequence[int], turns: Sequence[Turn]) -> Conversation:
    """Join a prompt and turns by token ids, exactly as sampled; text is never encoded again.

    Raises:
        ValueError: an assistant turn hasn't one log-probability a token; names the turn.
    """
    ids, prompts = list(prompt_ids), []
    mask, logprobs = [False] * len(ids), [0.0] * len(ids)
    for number, turn in enumerate(turns):
        sampled = turn.role == "assistant"
        said = (turn.logprobs or []) if sampled else [0.0] * len(turn.ids)
        if len(said) != len(turn.ids):
            raise ValueError(
                f"turn {number} must have one log-probability a token; "
                f"got {len(turn.ids)} ids and {len(said)} logprobs"
            )
        if sampled:
            prompts.append(list(ids))
        ids += turn.ids
        mask += [sampled] * len(turn.ids)
        logprobs += said
    return Conversation(ids, mask, logprobs, prompts)
