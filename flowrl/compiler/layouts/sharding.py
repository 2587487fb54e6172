"""Where a model's weights lie: a layout on certain ranks, and what each rank stores."""

from collections.abc import Iterable, Mapping
from itertools import product

import attrs

from flowrl.compiler.layouts.bundles import Bundle, bundles
from flowrl.compiler.layouts.division import (
    VOCABULARY,
    Storage,
    chunk,
    even,
    sections,
    tp_dim,
    vocabulary_span,
)
from flowrl.compiler.layouts.shard import Shard, cut, joined, stored_whole
from flowrl.compiler.shapes import ModelShape, Parameter, ParameterKind
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from flowrl.ir.sections import section_spans

FIRST = frozenset({ParameterKind.EMBEDDING, ParameterKind.POSITIONS})
"""What the first stage of a pipeline holds, of the parameters outside the layers."""


def _in_order(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(ranks)


@attrs.frozen
class Sharding:
    """A layout on certain ranks.

    Attributes:
        layout: how the weights are divided.
        ranks: in the order of the layout's mesh: `tp` neighbours stand side by side.
        storage: whose tensors they are.
        element_bytes: of a stored number.
    """

    layout: Layout
    ranks: tuple[int, ...] = attrs.field(converter=_in_order)
    storage: Storage = Storage.MODEL
    element_bytes: int = 2

    def __attrs_post_init__(self) -> None:
        if len(set(self.ranks)) != len(self.ranks) or len(self.ranks) != self.layout.size:
            raise RunFileError(
                f"the layout `{self.layout}` is of {self.layout.size} different GPUs; "
                f"got {len(self.ranks)}: {', '.join(map(str, self.ranks))}",
                hint="the product of a layout's axes is the size of its pool",
            )

    def shards(self, bundle: Bundle, shape: ModelShape) -> Mapping[int, tuple[Shard, ...]]:
        """Return the tensors of a bundle that each rank stores; ranks without any are left out."""
        at = stages(bundle, shape.layers, self.layout.pp)
        mesh = product(*map(range, self.layout.axes.values()))
        made: dict[tuple[int, int, int], tuple[Shard, ...]] = {}
        stored = {}
        for rank, (pp, _, *inside) in zip(self.ranks, mesh, strict=True):
            fsdp, ep, tp = inside
            if pp in at:
                if (fsdp, ep, tp) not in made:
                    made[fsdp, ep, tp] = _shards(bundle, shape, self, fsdp, ep, tp)
                stored[rank] = made[fsdp, ep, tp]
        return stored

    def tensors(self, rank: int, shape: ModelShape) -> tuple[Shard, ...]:
        """Return every tensor that a rank stores, in the model's order."""
        place = self.layout.coordinates(self.ranks.index(rank))
        inside = place["fsdp"], place["ep"], place["tp"]
        mine = (
            bundle
            for bundle in bundles(shape)
            if place["pp"] in stages(bundle, shape.layers, self.layout.pp)
        )
        return tuple(shard for bundle in mine for shard in _shards(bundle, shape, self, *inside))


def stages(bundle: Bundle, layers: int, pp: int) -> frozenset[int]:
    """Return the stages of a pipeline that hold a bundle.

    Layers that don't divide evenly go to the stages before the last, from its side, as in vLLM:
    the last one has the head. A tied embedding is on the first stage and, as the head, on the last.
    """
    first = bundle.parameters[0]
    if first.layer is None:
        last = {pp - 1} if first.kind not in FIRST or first.tied else set()
        return frozenset(last | ({0} if first.kind in FIRST else set()))
    each, more = divmod(layers, pp)
    ends = 0
    for stage in range(pp):
        ends += each + (pp - 1 - more <= stage < pp - 1)
        if first.layer < ends:
            return frozenset({stage})
    raise AssertionError("a layer is below the number of layers")


def _shards(
    bundle: Bundle, shape: ModelShape, sharding: Sharding, fsdp: int, ep: int, tp: int
) -> tuple[Shard, ...]:
    """Return what lies at one place of the mesh: divided, joined, then cut into chunks."""
    divided = [_divided(p, shape, sharding, ep, tp) for p in bundle.parameters]
    first = bundle.parameters[0]
    if sharding.storage is Storage.ENGINE and len(divided) > 1:
        dim = tp_dim(first)
        assert dim is not None, "what is joined is divided"
        divided = [joined(bundle.tensor, divided, dim)]
    if sharding.layout.fsdp == 1:
        return tuple(divided)
    return tuple(_chunk(shard, first, sharding.layout, fsdp) for shard in divided)


def _divided(
    parameter: Parameter, shape: ModelShape, sharding: Sharding, ep: int, tp: int
) -> Shard:
    """Return a parameter's shard by experts, heads, columns, rows or vocabulary."""
    shard, dim, layout = stored_whole(parameter), tp_dim(parameter), sharding.layout
    if parameter.experts is not None:
        index, ranks = ep, layout.ep
        if layout.whole_experts:
            index, ranks, dim = ep * layout.tp + tp, ranks * layout.tp, None
        span = even(parameter.shape[parameter.experts], index, ranks)
        shard = cut(shard, parameter.experts, [span])
    if dim is None:
        return shard
    if parameter.kind in VOCABULARY:
        span = vocabulary_span(parameter.shape[dim], tp, layout.tp, sharding.storage)
        return cut(shard, dim, [span])
    if layout.tp == 1:
        return shard
    return cut(shard, dim, section_spans(sections(parameter, shape), tp, layout.tp))


def _chunk(shard: Shard, parameter: Parameter, layout: Layout, index: int) -> Shard:
    """Return the chunk of a stored tensor that FSDP2 gives a rank."""
    dim = fsdp_dim(parameter, shard.shape, layout)
    return cut(shard, dim, [chunk(shard.shape[dim], index, layout.fsdp)])


def fsdp_dim(parameter: Parameter, stored: tuple[int, ...], layout: Layout) -> int:
    """Return the dim of a stored tensor that FSDP divides: the first, or the one that `tp` does.

    FSDP2 divides other dims than the first evenly only: what doesn't divide lies along the first.
    """
    whole = layout.whole_experts and parameter.experts is not None
    dim = tp_dim(parameter) if layout.along_tp and not whole else None
    return dim if dim and stored[dim] % layout.fsdp == 0 else 0
