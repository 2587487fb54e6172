"""FSDP shards that lie inside the shards that generation needs."""

from flowrl.compiler.layouts.sharding import Sharding
from flowrl.ir.layout import Layout


def matched(generation: Sharding, *, element_bytes: int = 4) -> Sharding:
    """Return an FSDP sharding on the same ranks whose shards are parts of those to generate from.

    FSDP divides the dim that `tp` does (`shard_placement_fn` of FSDP2), and its mesh counts the
    ranks so that each one's chunk is a part of its own shard in generation. Over links goes only
    what a rank's shard in generation has beyond its chunk: nothing where `tp` fills the pool.
    Tensors that join query, key and value, or gate and up, in the model itself are matched in part.

    Args:
        generation: where it generates.
        element_bytes: of a stored number in training.
    """
    layout = generation.layout

    def shard_first(index: int) -> tuple[int, ...]:
        place = layout.coordinates(index)
        return place["ep"], place["tp"], place["pp"], place["dp"], place["fsdp"]

    along_tp = layout.tp > 1
    whole_experts = along_tp and (layout.whole_experts or layout.ep > 1)
    chunks = Layout(fsdp=layout.size, along_tp=along_tp, whole_experts=whole_experts)
    order = sorted(range(layout.size), key=shard_first)
    ranks = tuple(generation.ranks[index] for index in order)
    return Sharding(chunks, ranks, element_bytes=element_bytes)
