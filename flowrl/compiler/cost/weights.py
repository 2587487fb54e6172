"""How many of a model's numbers lie on the fullest rank of a layout."""

from functools import cache
from math import ceil

import attrs

from flowrl.compiler.layouts.division import tp_dim
from flowrl.compiler.layouts.sharding import FIRST
from flowrl.compiler.shapes import ModelShape, Parameter, ParameterKind
from flowrl.ir.layout import Layout


@attrs.frozen
class Counts:
    """A model's numbers, by how layouts divide them.

    Attributes:
        divided: of all layers: divided by `tp`.
        keys: of all layers: divided by `tp` up to the number of key heads.
        whole: of all layers: on each rank of `tp`.
        experts: of all layers: divided by `ep` and `tp`.
        first: before the layers; divided by `tp`.
        last: after the layers; divided by `tp`. A tied head counts again: later stages copy it.
    """

    divided: int
    keys: int
    whole: int
    experts: int
    first: int
    last: int


@cache
def counts(shape: ModelShape, *, linear: bool = True) -> Counts:
    """Count a model's numbers, with those of linear layers or without."""
    found = dict.fromkeys(("divided", "keys", "whole", "experts", "first", "last", "tied"), 0)
    for parameter in (p for p in shape.parameters() if linear or not p.is_linear):
        found[_place(parameter)] += parameter.count
        found["tied"] += parameter.tied * parameter.count
    tied = found.pop("tied")
    return Counts(**found | {"last": found["last"] + tied})


def _place(parameter: Parameter) -> str:
    if parameter.layer is None:
        return "first" if parameter.kind in FIRST else "last"
    if parameter.experts is not None:
        return "experts"
    if parameter.kind in (ParameterKind.KEY, ParameterKind.VALUE):
        return "keys"
    return "whole" if tp_dim(parameter) is None else "divided"


def batches(layout: Layout) -> int:
    """Return how many parts a batch of sequences is divided into: by all axes but `tp` and `pp`."""
    return layout.dp * layout.fsdp * layout.ep


def layer_count(
    shape: ModelShape, layout: Layout, *, experts: bool = True, linear: bool = True
) -> float:
    """Return the numbers of one layer on a rank, before FSDP divides them."""
    c = counts(shape, linear=linear)
    keys = c.keys / min(layout.tp, shape.kv_heads)
    routed = c.experts / (layout.ep * layout.tp) if experts else 0.0
    return (c.divided / layout.tp + keys + c.whole + routed) / shape.layers


def shard_count(shape: ModelShape, layout: Layout, *, linear: bool = True) -> int:
    """Return the numbers on the fullest rank: of the first or of the last pipeline stage."""
    layers = ceil(shape.layers / layout.pp) * layer_count(shape, layout, linear=linear)
    return ceil((layers + end_count(shape, layout, linear=linear)) / layout.fsdp)


def end_count(shape: ModelShape, layout: Layout, *, linear: bool = True) -> float:
    """Return the numbers outside the layers of a rank's stage, before FSDP divides them."""
    c = counts(shape, linear=linear)
    ends = max(c.first, c.last) if layout.pp > 1 else ends_count(shape, linear=linear)
    return ends / layout.tp


@cache
def ends_count(shape: ModelShape, *, linear: bool = True) -> int:
    """Return the numbers outside the layers, a tied head counted once."""
    ends = (p for p in shape.parameters() if p.layer is None)
    return sum(p.count for p in ends if linear or not p.is_linear)


@cache
def largest_count(shape: ModelShape) -> int:
    """Return the numbers of the largest parameter."""
    return max(parameter.count for parameter in shape.parameters())
