"""Sections: how ranks divide a dim of a parameter by heads or columns."""

from collections.abc import Sequence

import attrs

Span = tuple[int, int]
"""A start and a stop."""


@attrs.frozen
class Section:
    """A run of a dim that is divided by itself, in units that stay whole.

    Attributes:
        size: its length.
        unit: elements of a head; 1 for a column.
        shared: whether ranks share a unit when there are more of them than units.
    """

    size: int
    unit: int = 1
    shared: bool = False

    @property
    def units(self) -> int:
        """How many units it has."""
        return self.size // self.unit

    def fits(self, ranks: int) -> bool:
        """Whether it can be divided over so many ranks."""
        return self.units % ranks == 0 or (self.shared and ranks % self.units == 0)

    def span(self, index: int, ranks: int) -> Span:
        """Return what the `index`-th of `ranks` ranks gets."""
        each = max(1, self.units // ranks)
        first = index * self.units // ranks
        return first * self.unit, (first + each) * self.unit

    def misfit(self, ranks: int, name: str) -> str:
        """Return what so many ranks don't divide in the parameter `name`."""
        units = f"{self.units} heads" if self.unit > 1 else self.size
        return f"`tp` {ranks} doesn't divide the {units} of `{name}`"


def section_spans(parts: Sequence[Section], index: int, ranks: int) -> tuple[Span, ...]:
    """Return what a rank gets of every section, in coordinates of the whole dim."""
    spans, at = [], 0
    for part in parts:
        start, stop = part.span(index, ranks)
        spans.append((at + start, at + stop))
        at += part.size
    return tuple(spans)


def joined_heads(size: int, heads: int, kv_heads: int) -> tuple[Section, ...]:
    """Return the sections of a dim that has query, key and value heads, in this order."""
    head = size // (heads + 2 * kv_heads)
    keys = Section(kv_heads * head, head, shared=True)
    return Section(heads * head, head), keys, keys
