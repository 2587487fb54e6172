"""Sequences end to end in one row, for a model that reads them without padding.

`flowrl.runtime.model.forward` lays packed batches out by `pack`; `packed_attention` says what a
kernel of packed attention has to compute.
"""

import attrs
import torch
from torch import Tensor

from flowrl.functional.ragged import Ragged


@attrs.frozen(eq=False)
class Packed:
    """Packed sequences.

    Attributes:
        input_ids: i64[token].
        position_ids: i64[token], from 0 in each sequence.
        labels: i64[token], the next token of the same sequence; ignored at its last one.
        cu_seqlens: i32[sequence + 1], where each sequence starts, and the end.
        max_seqlen: tokens of the longest.
    """

    input_ids: Tensor
    position_ids: Tensor
    labels: Tensor
    cu_seqlens: Tensor
    max_seqlen: int


def pack(sequences: Ragged, *, ignore_index: int = -100) -> Packed:
    """Say where packed sequences lie, with labels that never cross from one into the next.

    Args:
        sequences: i64[sequence, token], token ids.
        ignore_index: the label of each last token, which has no next one.
    """
    ids, (lengths,) = sequences.values, sequences.lengths
    ends = lengths.cumsum(0)
    starts = (ends - lengths).repeat_interleave(lengths)
    labels = ids.roll(-1)
    labels[ends[lengths > 0] - 1] = ignore_index
    return Packed(
        input_ids=ids,
        position_ids=torch.arange(len(ids)) - starts,
        labels=labels,
        cu_seqlens=torch.nn.functional.pad(ends, (1, 0)).to(torch.int32),
        max_seqlen=int(lengths.max()) if len(lengths) else 0,
    )


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Return causal softmax(q k * scale) v inside each packed sequence.

    Its scores are of each token with each: it is for short packs.

    Args:
        q: f32[..., head, token, channel].
        k: f32[..., key_head, token, channel]; as many heads, or each for several neighbours of q.
        v: f32[..., key_head, token, channel].
        cu_seqlens: i64[sequence + 1], where each sequence starts, and the end.
        scale: 1 / sqrt(channel) if not given.
        window: newest tokens that a token sees, itself among them; all if not given.
        softcap: scores s become softcap * tanh(s / softcap) (Gemma Team 2024, arXiv:2408.00118).

    Returns:
        f32[..., head, token, channel].
    """
    position = torch.arange(q.shape[-2], device=q.device)
    sequence = torch.searchsorted(cu_seqlens.to(position.dtype), position, right=True)
    behind = position[:, None] - position
    seen = (sequence[:, None] == sequence) & (behind >= 0)
    if window is not None:
        seen &= behind < window
    if k.shape != q.shape:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
