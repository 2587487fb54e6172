"""What a picture consists of: shapes in boxes, and edges."""

from collections.abc import Mapping
from enum import StrEnum

import attrs

NAMES = 3
"""How many values of one edge are named."""


class Look(StrEnum):
    """What a shape stands for."""

    MODEL = "model"
    DATA = "data"
    ENGINE = "engine"
    """An op that runs a model."""
    WORLD = "world"
    """An op that acts on the world."""
    TENSOR = "tensor"
    CONTROL = "control"
    RESULT = "result"


@attrs.frozen
class Shape:
    """A node of the picture."""

    id: str
    lines: tuple[str, ...]
    look: Look


@attrs.define
class Box:
    """Shapes that belong together: a pool, or a nested graph."""

    id: str
    title: str
    pool: bool = False
    shapes: list[Shape] = attrs.field(factory=list)
    boxes: list["Box"] = attrs.field(factory=list)


@attrs.define
class DrawnEdge:
    """Values that flow from one shape to another."""

    values: dict[str, str] = attrs.field(factory=dict)
    """Types by name."""
    transfer: bool = False
    """Whether they change pool."""

    def lines(self) -> list[str]:
        """Return the label: names with types, or only names where there are many."""
        shown = [f"{name}: {type}" if name else type for name, type in self.values.items()]
        if len(shown) <= NAMES - 1:
            return shown
        names = list(self.values)
        rest = f" + {len(names) - NAMES}" if len(names) > NAMES else ""
        longest = max(self.values.values(), key=lambda type: type.count(","))
        return [", ".join(names[:NAMES]) + rest, f"on [{longest.partition('[')[2]}"]


@attrs.frozen
class Drawing:
    """A picture: the outermost box, and edges between shapes in any of them."""

    name: str
    box: Box
    edges: Mapping[tuple[str, str], DrawnEdge]
