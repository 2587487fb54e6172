"""Nested rows of unequal length, packed: the form of every tensor on an edge."""

from collections.abc import Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor


@attrs.frozen(eq=False)
class Ragged:
    """The elements of nested rows, one after another, and how many each row has.

    `f32[prompt, sample, token]` is `values: f32[all tokens]`, with `lengths[0]: i64[prompt]`
    samples a prompt and `lengths[1]: i64[all samples]` tokens a sample. `f32[prompt]` has no
    lengths. Nothing is padded.
    """

    values: Tensor
    lengths: tuple[Tensor, ...] = ()

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[int] | Tensor], dtype: torch.dtype) -> "Ragged":
        """Pack a list of rows."""
        parts = [torch.as_tensor(row, dtype=dtype) for row in rows]
        values = torch.cat(parts) if parts else torch.empty(0, dtype=dtype)
        return cls(values, (torch.tensor([len(part) for part in parts], dtype=torch.int64),))

    def rows(self) -> list[Tensor]:
        """Return the innermost rows, as views."""
        return list(self.values.split(self.lengths[-1].tolist()))

    def replace(self, values: Tensor) -> "Ragged":
        """Return the same rows with other elements."""
        return Ragged(values, self.lengths)


def pad(values: Tensor, lengths: Tensor, fill: float = 0.0) -> Tensor:
    """Return [row, longest row] from packed `values`, with `fill` after each row's end."""
    return torch.nn.utils.rnn.pad_sequence(
        list(values.split(lengths.tolist())), batch_first=True, padding_value=fill
    )


def unpad(padded: Tensor, lengths: Tensor) -> Tensor:
    """Return the packed elements of the first `lengths[i]` positions of each row."""
    position = torch.arange(padded.shape[1], device=padded.device)
    return padded[position[None] < lengths[:, None].to(padded.device)]


def select(mask: Tensor | None, *tensors: Tensor) -> list[Tensor]:
    """Return the tensors with 0 where `mask` is False; its gradient there is 0 as well.

    Selecting before the arithmetic, not after it, is what keeps a masked NaN out of gradients.
    """
    if mask is None:
        return list(tensors)
    return [torch.where(mask, x, torch.zeros_like(x)) for x in tensors]


def put_back(trained: Tensor, mask: Tensor) -> Tensor:
    """Return the form of `mask` with `trained: [n]` at its n True places, in order; 0 elsewhere."""
    return trained.new_zeros(mask.shape).masked_scatter(mask, trained)


def segment(
    values: Tensor, lengths: Tensor, reduction: Literal["sum", "max", "min"] = "sum"
) -> Tensor:
    """Reduce packed floating `values` to one number a row; an empty row gives 0, -inf or inf.

    On CPU a row's result doesn't depend on the rows beside it, not even in its last bit.
    """
    if lengths.numel() == 0:
        return values
    return torch.segment_reduce(values, reduction, lengths=lengths.to(values.device))


def spread(per_row: Tensor, mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return [..., token] with each row's number at all of its tokens.

    Args:
        per_row: [...], one number a row.
        mask: bool[..., token], or packed; only its form is read.
        lengths: i64[row] if `mask` is packed.
    """
    if lengths is None:
        return per_row[..., None].expand(mask.shape)
    return per_row.repeat_interleave(lengths.to(per_row.device))


def row_counts(mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return i64[...], the trained tokens of each row."""
    if lengths is None:
        return mask.sum(-1)
    return segment(mask.to(torch.float64), lengths).to(torch.int64)


def discounted_sums(values: Tensor, lengths: Tensor, discount: float) -> Tensor:
    """Return y_t = x_t + discount * y_{t+1}, within each row of packed `values`.

    Each pass doubles how far ahead every element has summed, so log2(longest row) passes do.
    """
    ends = lengths.cumsum(0).repeat_interleave(lengths)
    ahead = ends - torch.arange(len(values), device=values.device)  # elements from here to the end
    longest = int(lengths.max()) if lengths.numel() else 0
    step = 1
    while step < longest:
        later = torch.where(ahead > step, values.roll(-step), torch.zeros_like(values))
        values = values + discount**step * later
        step *= 2
    return values
