"""Where the elements of packed rows lie, as indices."""

import torch
from torch import Tensor

from flowrl.functional.ragged import Ragged


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return starts[i], starts[i] + 1, ... for lengths[i] places, for each i in turn."""
    skipped = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) + (starts - skipped).repeat_interleave(lengths)


def children(lengths: Tensor, index: Tensor) -> Tensor:
    """Return the numbers of the elements inside the elements `index` of the level above.

    lengths: i64[all elements above], how many each holds.
    """
    return ranges((lengths.cumsum(0) - lengths)[index], lengths[index])


def parents(lengths: tuple[Tensor, ...]) -> Tensor:
    """Return, for each innermost row, the number of the first-axis element that it lies in."""
    index = torch.arange(len(lengths[0]))
    for level in lengths[:-1]:
        index = index.repeat_interleave(level)
    return index


def take_rows(ragged: Ragged, index: Tensor) -> Ragged:
    """Return innermost rows by number, as one level; one may come several times."""
    lengths = ragged.lengths[-1]
    return Ragged(ragged.values[children(lengths, index)], (lengths[index],))
