"""Batches of rows in both forms, padded and packed, for laws that hold for every batch."""

import attrs
import pytest
import torch
from hypothesis import strategies as st

from flowrl.functional.ragged import pad, unpad

JUNK = (float("nan"), float("inf"), float("-inf"), 500.0)


@attrs.frozen(eq=False)
class Batch:
    """Rows of random numbers, some of their tokens masked.

    tokens: float columns by name, f[packed token]. rows: float columns by name, f[row].
    """

    lengths: torch.Tensor
    mask: torch.Tensor
    tokens: dict[str, torch.Tensor]
    rows: dict[str, torch.Tensor]
    groups: torch.Tensor

    def dirty(self, junk):
        """Return the batch with `junk` at every masked token."""
        tokens = {name: x.masked_fill(~self.mask, junk) for name, x in self.tokens.items()}
        return attrs.evolve(self, tokens=tokens)

    def padded(self, extra=0, junk=float("nan")):
        """Return mask and columns as [row, token], `extra` positions wider than the longest row."""
        fill = lambda x, value: torch.nn.functional.pad(
            pad(x, self.lengths, value), (0, extra), value=value
        )
        return fill(self.mask, False), {name: fill(x, junk) for name, x in self.tokens.items()}

    def packed_from(self, padded):
        """Return the packed elements of a padded result."""
        return unpad(padded, self.lengths)


@st.composite
def batches(draw, dtype=torch.float64, least=0):
    """Draw a batch with at least `least` trained tokens."""
    masks = draw(
        st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=5).filter(
            lambda rows: sum(map(sum, rows)) >= least
        )
    )
    mask = torch.tensor([trained for row in masks for trained in row], dtype=torch.bool)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    number = lambda size: torch.randn(size, generator=generator, dtype=dtype)
    return Batch(
        lengths=torch.tensor([len(row) for row in masks]),
        mask=mask,
        tokens={name: number(len(mask)) for name in "abcd"},
        rows={name: number(len(masks)) for name in "rs"},
        groups=torch.randint(0, 3, (len(masks),), generator=generator),
    )


def refusal(function, *args, **options):
    """Return the message of the ValueError that a call raises."""
    with pytest.raises(ValueError, match=r"\w") as error:
        function(*args, **options)
    return str(error.value)
