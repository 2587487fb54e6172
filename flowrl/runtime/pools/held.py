"""Values as the controller knows them: ids, under which workers keep them."""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from flowrl.ir.graph import Node
from flowrl.runtime.pools.lines import Given, Line

IDS = itertools.count()
"""Of values, in all runs of this process."""


class Held:
    """A value that workers have, under an id; when nothing here refers to it, they forget it."""

    __slots__ = ("copies", "id", "lines", "way")

    def __init__(self, lines: Sequence[Line]) -> None:
        self.id, self.lines = next(IDS), list(lines)
        self.copies: dict[str, Held] = {}
        """The same value in other pools."""
        self.way: tuple[Held, Node] | None = None
        """Of a model that was resharded: the one it was, and by which node."""

    def __del__(self) -> None:
        for line in self.lines:
            line.dead.append(self.id)

    @property
    def pool(self) -> str:
        """Where it is; it may have copies elsewhere."""
        return self.lines[0].pool


def hold(lines: Sequence[Line], count: int) -> list[Held]:
    """Return values to come of the same workers, whose ids follow each other."""
    return [Held(lines) for _ in range(count)]


def as_given(value: Any) -> Given:
    """Return a value as a worker that has it is told of it."""
    if isinstance(value, Held):
        return value.id
    if isinstance(value, Tensor) and not value.dim():
        return "number", value.item()
    return "as it is", value
