"""How packed elements are nested, and how fewer of them are spread over more."""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Value
from flowrl.ir.types import Axis


@attrs.frozen(eq=False)
class Form:
    """How elements are nested.

    Attributes:
        first: elements of the first axis; 1 of a scalar.
        lengths: elements inside each of those, and so on.
    """

    first: int = 1
    lengths: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, value: Ragged | Tensor) -> "Form":
        """Return the form of a value."""
        if not isinstance(value, Ragged):
            return cls()
        lengths = value.lengths
        return cls(len(lengths[0]) if lengths else len(value.values), lengths)

    @classmethod
    def over(cls, axes: tuple[Axis, ...], args: Sequence[tuple[Value, Ragged | Tensor]]) -> "Form":
        """Return the form of elements on `axes`, read off an argument that has them all."""
        return next((cls.of(x) for arg, x in args if arg.axes[: len(axes)] == axes), cls())

    def size(self, depth: int) -> int:
        """Return the number of elements of a value with the first `depth` axes."""
        return int(self.lengths[depth - 2].sum()) if depth > 1 else self.first

    def broadcast(self, arg: Ragged | Tensor, depth: int) -> Tensor:
        """Return the elements of an argument, one for each element of the first `depth` axes."""
        if isinstance(arg, Ragged):
            return self._spread(arg.values, len(arg.lengths), depth - 1)
        return arg.expand(self.size(depth)) if depth else arg

    def groups(self) -> Tensor:
        """Return the number of the first-axis element that each one of the second lies in."""
        return self._spread(torch.arange(self.first), 0, 1)

    def units(self, x: Tensor, depth: int, unit: int) -> list[Tensor | list[Tensor]]:
        """Split the elements of `depth` axes into those inside each element of axis `unit`.

        Elements that lie more than one axis deeper come as lists: a group's samples of tokens.
        """
        if depth - 1 <= unit:
            return list(x)
        parts: list[Tensor | list[Tensor]] = list(x.split(self.lengths[depth - 2].tolist()))
        for level in range(depth - 3, unit - 1, -1):
            pieces = iter(parts)
            parts = [[next(pieces) for _ in range(n)] for n in self.lengths[level].tolist()]  # type: ignore[misc]
        return parts

    def _spread(self, values: Tensor, level: int, to: int) -> Tensor:
        """Repeat the elements of nesting `level` for each of their elements of level `to`."""
        for depth in range(level, max(level, to)):
            values = values.repeat_interleave(self.lengths[depth], dim=0)
        return values
