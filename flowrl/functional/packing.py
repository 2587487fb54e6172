"""Sequences end to end in one row, for a model that reads them without padding.

`flowrl.runtime.forward` lays packed batches out by `pack`; `packed_attention` says what a kernel
of packed attention has to compute.
"""

import attrs
import torch
from torch import Tensor

from flowrl.functional.ragged import Ragged


@attrs.frozen(eq=False)
class Packed:
    """Packed sequences.

    input_ids: i64[token]. position_ids: i64[token], from 0 in each sequence.
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


def packed_attention(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return causal softmax(q k / sqrt(channel)) v inside each packed sequence.

    Its mask is token by token: it is for short packs.

    Args:
        q: f32[..., token, channel].
        k: f32[..., token, channel].
        v: f32[..., token, channel].
        cu_seqlens: i64[sequence + 1], where each sequence starts, and the end.

    Returns:
        f32[..., token, channel].
    """
    position = torch.arange(q.shape[-2], device=q.device)
    sequence = torch.searchsorted(cu_seqlens.to(position.dtype), position, right=True)
    seen = (sequence[:, None] == sequence) & (position[:, None] >= position)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
