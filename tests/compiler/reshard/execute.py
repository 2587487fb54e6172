"""Reshard plans carried out on NumPy arrays, one set of tensors a rank."""

import numpy as np

from flowrl.compiler.layouts import bundles, located
from flowrl.compiler.reshard import buffers

DTYPES = {2: np.float16, 4: np.float32}
PADDING = -1.0


def numbers(shape, seed=0):
    """A whole model of numbers that float16 holds exactly, none of them the padding's."""
    random = np.random.default_rng(seed)
    return {
        p.name: random.integers(0, 2048, p.shape).astype(np.float32) for p in shape.parameters()
    }


def slices(box):
    return tuple(slice(start, stop) for start, stop in box)


def tensors_of(sharding, shape):
    """What every rank stores."""
    found = dict.fromkeys(sharding.ranks, ())
    for bundle in bundles(shape):
        for rank, shards in sharding.shards(bundle, shape).items():
            found[rank] += shards
    return found


def stored(whole, shape, sharding):
    """The tensors of every rank, made from the whole model."""
    tensors = {rank: {} for rank in sharding.ranks}
    for rank, shards in tensors_of(sharding, shape).items():
        mine = tensors[rank]
        for shard in shards:
            mine[shard.tensor] = np.full(shard.shape, PADDING, DTYPES[sharding.element_bytes])
            for piece in shard.pieces:
                mine[shard.tensor][slices(piece.stored)] = whole[piece.parameter][slices(piece.box)]
    return tensors


def executed(plan, shape, have, *, limit=1 << 20, without=()):
    """The tensors of every rank after a plan, from those before it.

    Args:
        plan: what to do.
        shape: of the model.
        have: tensors by rank and name, as `stored` gives them.
        limit: bytes of a buffer.
        without: sends that are lost.
    """
    dtype = DTYPES[plan.dst.element_bytes]
    held, needed = tensors_of(plan.src, shape), tensors_of(plan.dst, shape)
    tensors = {
        rank: {shard.tensor: np.full(shard.shape, PADDING, dtype) for shard in mine}
        for rank, mine in needed.items()
    }
    for alias in plan.aliases():
        rows = slice(alias.start, alias.start + len(tensors[alias.rank][alias.tensor]))
        tensors[alias.rank][alias.tensor] = have[alias.rank][alias.held][rows]

    def read(rank, parameter, box, *, again=False):
        shards, mine = (needed, tensors) if again else (held, have)
        tensor, where = located(shards[rank], parameter, box)
        return mine[rank][tensor][slices(where)]

    def write(rank, parameter, box, values):
        tensor, where = located(needed[rank], parameter, box)
        tensors[rank][tensor][slices(where)] = values

    for copy in plan.copies():
        write(copy.rank, copy.parameter, copy.box, read(copy.rank, copy.parameter, copy.box))
    for buffer in buffers((send for send in plan.sends() if send not in without), limit):
        parts = [
            read(buffer.source, send.parameter, send.box, again=buffer.hop > 0)
            for send in buffer.sends
        ]
        packed = np.concatenate([part.ravel() for part in parts]).astype(DTYPES[plan.sent_bytes])
        assert packed.nbytes == buffer.bytes
        for send, part in zip(buffer.sends, parts, strict=True):
            values, packed = np.split(packed, [part.size])
            write(buffer.destination, send.parameter, send.box, values.reshape(part.shape))
    return tensors


def same(a, b):
    """Whether all ranks store the same, bit for bit."""
    assert a.keys() == b.keys()
    return all(
        a[rank].keys() == b[rank].keys()
        and all(np.array_equal(a[rank][name], b[rank][name]) for name in a[rank])
        for rank in a
    )
