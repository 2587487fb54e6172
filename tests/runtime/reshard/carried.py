"""What one of the ranks does that carry out a plan."""

import attrs
import torch

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.shapes import ModelShape
from flowrl.errors import EngineError
from flowrl.runtime.ranks import ranks
from flowrl.runtime.ranks.agreement import numbers
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.runtime.reshard import Sent, Wire, compare, reshard
from flowrl.train.checks import checks_of
from flowrl.train.moves import move_of

RANKS = 6
NODE = Machines.parse("8xH100")
PADDING = -1.0
DTYPES = {2: torch.bfloat16, 4: torch.float32}


def join(rank, address):
    """Become a rank; in a process of its own."""
    torch.set_num_threads(1)
    own = Ranks(rank, RANKS, timeout=300)
    ranks.join(own, ranks.connect(address, own))


@attrs.frozen
class Case:
    """A model, from where to where it goes, on which machines, in buffers of how many bytes."""

    shape: ModelShape
    src: Sharding
    dst: Sharding
    machines: Machines = NODE
    limit: int = 500

    @property
    def plan(self):
        return plan_reshard(self.shape, self.src, self.dst, self.machines)


@attrs.frozen
class Got:
    """What a rank has moved, and which tensors it has otherwise than the whole model says."""

    sent: Sent
    wrong: list[str]


def whole_model(shape):
    """Weights of which no two of a parameter's are alike in float32, and many are in bfloat16."""
    draw = torch.Generator().manual_seed(0)
    return {p.name: torch.rand(p.shape, generator=draw) for p in shape.parameters()}


def stored(whole, shape, sharding, rank, dtype):
    """What a rank stores of a whole model; numbers are rounded to `dtype` and have that type."""
    found = {}
    for shard in sharding.tensors(rank, shape) if rank in sharding.ranks else ():
        found[shard.tensor] = torch.full(shard.shape, PADDING).to(dtype)
        for piece in shard.pieces:
            part = whole[piece.parameter][tuple(slice(*span) for span in piece.box)]
            found[shard.tensor][tuple(slice(*span) for span in piece.stored)] = part.to(dtype)
    return found


def ends(case, rank):
    """What a rank holds, and what it needs as it should be; between them goes the narrower type."""
    whole = whole_model(case.shape)
    old, new = (DTYPES[sharding.element_bytes] for sharding in (case.src, case.dst))
    if torch.bfloat16 in (old, new):
        whole = {name: tensor.bfloat16() for name, tensor in whole.items()}
    return (
        stored(whole_model(case.shape), case.shape, case.src, rank, old),
        stored(whole, case.shape, case.dst, rank, new),
    )


def carried(rank, case, fault=None):
    """Carry out a plan, into tensors that are empty before; compare, if nothing is done to them."""
    held, expected = ends(case, rank)
    needed = {name: torch.full_like(tensor, PADDING) for name, tensor in expected.items()}
    wire = Wire(DTYPES[case.plan.sent_bytes])
    move = move_of(case.plan, case.shape, rank, case.limit)
    move = fault.of_move(move) if fault else move
    done = reshard(move, held, needed, wire)
    if fault:
        fault.of_tensors(rank, needed)
    compare(checks_of(case.plan, case.shape, rank), held, needed, wire, numbers)
    return Got(done, [name for name in needed if not torch.equal(needed[name], expected[name])])


def told(rank, case, fault):
    """Return what a rank says of a reshard in which something went wrong."""
    try:
        carried(rank, case, fault)
    except EngineError as error:
        return str(error)
    return ""


@attrs.frozen
class Fault:
    """Nothing goes wrong."""

    rank: int = 0

    def of_move(self, move):
        return move

    def of_tensors(self, rank, needed):
        if rank == self.rank:
            self.spoil(needed)

    def spoil(self, needed):
        pass


class FlippedBit(Fault):
    """The lowest bit of one number."""

    def spoil(self, needed):
        needed["model.norm.weight"].view(torch.int16)[3] ^= 1


class SwappedRows(Fault):
    """All bits are there, in other places."""

    def spoil(self, needed):
        weight = needed["model.layers.1.mlp.down_proj.weight"]
        weight[[0, 1]] = weight[[1, 0]]


class LostBuffer(Fault):
    """The first buffer that the rank should get is neither sent nor awaited."""

    def of_move(self, move):
        lost = next((b for step in move.steps for r in step for b in r if self.is_for(b)), None)
        kept = [[[b for b in r if b is not lost] for r in step] for step in move.steps]
        steps = tuple(tuple(tuple(r) for r in step if r) for step in kept)
        return attrs.evolve(move, steps=steps)

    def is_for(self, buffer):
        return buffer.source == 0 and buffer.destination == self.rank
