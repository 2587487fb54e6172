"""Groups of samples: sums and extremes by group, whatever the ids, order or sizes."""

import attrs
import torch
from torch import Tensor

from flowrl.functional.ragged import segment


@attrs.frozen(eq=False)
class Groups:
    """Which samples belong together.

    Attributes:
        order: i64[N], the samples sorted by group, in their own order within one.
        index: i64[N], the group of each sample, numbered by first appearance.
        sizes: i64[G], how many samples each group has.
    """

    order: Tensor
    index: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, samples: Tensor, groups: Tensor | None) -> "Groups":
        """Read `groups: i64[N]`, or take the last dimension of `samples` as the group.

        Raises:
            ValueError: the ids aren't one a sample.
        """
        if groups is None:
            count, size = samples.shape[:-1].numel(), samples.shape[-1]
            groups = torch.arange(count, device=samples.device).repeat_interleave(size)
        if groups.shape != (samples.numel(),):
            raise ValueError(
                f"groups must have one id a sample, i64[{samples.numel()}]; "
                f"got shape {tuple(groups.shape)}"
            )
        index = _by_first_appearance(groups.to(samples.device))
        return cls(index.argsort(stable=True), index, index.bincount())

    def sum(self, x: Tensor) -> Tensor:
        """Return [G], the sum of each group's elements of `x: [N]`."""
        return segment(x[self.order], self.sizes)

    def max(self, x: Tensor) -> Tensor:
        """Return [G], the largest element of each group."""
        return segment(x[self.order], self.sizes, "max")

    def min(self, x: Tensor) -> Tensor:
        """Return [G], the smallest element of each group."""
        return segment(x[self.order], self.sizes, "min")

    def spread(self, per_group: Tensor) -> Tensor:
        """Return [N], each sample's entry of `per_group: [G]`."""
        return per_group[self.index]


def _by_first_appearance(ids: Tensor) -> Tensor:
    """Return i64[N]: 0 for the first id and those equal to it, 1 for the next, and so on."""
    _, index = ids.unique(return_inverse=True)
    first = torch.full((int(index.max()) + 1 if len(index) else 0,), len(ids), device=ids.device)
    first = first.scatter_reduce(0, index, torch.arange(len(ids), device=ids.device), "amin")
    return first.argsort().argsort()[index]
