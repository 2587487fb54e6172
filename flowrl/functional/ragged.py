"""Nested rows of unequal length, packed: the form of every tensor on an edge."""

from collections.abc import Sequence

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
