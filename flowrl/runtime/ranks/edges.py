"""Edges: the ways that a model's weights take between layouts, and so between workers."""

import attrs

from flowrl.ir.graph import Node, Value
from flowrl.ir.layout import Layout
from flowrl.ir.types import ModelType
from flowrl.ops.move import Reshard


@attrs.frozen
class Edge:
    """A way that weights take.

    Attributes:
        role: whose weights.
        src: the pool where they are.
        held: how they lie there.
        dst: the pool where they are needed.
        needed: how they must lie there.
    """

    role: str
    src: str
    held: Layout
    dst: str
    needed: Layout

    @classmethod
    def of(cls, node: Node) -> "Edge":
        """Return the edge that a `reshard` is."""
        op, (model,) = node.op, node.args
        assert isinstance(op, Reshard)
        assert isinstance(model.type, ModelType)
        return cls(model.type.role, op.src, layout_of(model), op.dst, Layout.parse(op.layout))

    @property
    def ends(self) -> str:
        """What the workers at both ends are called together."""
        return ends_name(self.src, self.dst)

    def __str__(self) -> str:
        return f"`{self.role}`: {self.src} {self.held} -> {self.dst} {self.needed}"


def group_name(pool: str, layout: Layout) -> str:
    """Return what the workers of a pool that have one replica in a layout are called together."""
    return f"{pool} tp{layout.tp}"


def ends_name(src: str, dst: str) -> str:
    """Return what the workers of two pools between which weights move are called together."""
    return f"{src} -> {dst}"


def layout_of(model: Value) -> Layout:
    """Return how a model lies: on one rank, if its type doesn't say."""
    assert isinstance(model.type, ModelType)
    return Layout.parse(model.type.layout or "1")
