"""Reshards carried out: the planner's send lists beside gathering everything and slicing it.

    python benchmarks/reshard_wire.py [--ranks N] [--layers N] [--hidden N] [--times N]

A trainer's ranks have chunks of a model in float32 (FSDP), a generator's ranks need it in bfloat16.
Either the slices that a rank lacks come to it point to point, by the plan; or every tensor is
gathered on the trainer's ranks, broadcast whole to all others, and cut there, which is what a sync
without a planner does. Both run in turns in one process group: over nccl where each rank has a GPU,
else over gloo on the CPU. Bytes are those that ranks receive; the third column of seconds is what
`compare` costs after a reshard, its checksums of all that is held and needed.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import attrs
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.shapes import ModelShape, Parameter
from flowrl.compiler.shapes.known import known_shape
from flowrl.ir.box import Box
from flowrl.ir.layout import Layout
from flowrl.runtime.ranks.agreement import numbers
from flowrl.runtime.ranks.ranks import Ranks, connect, join, open_store
from flowrl.runtime.reshard import Checks, Move, Wire, compare, reshard
from flowrl.train.checks import checks_of
from flowrl.train.moves import move_of

MOVES = (
    # trainer, from rank; generator, from rank
    ("1", 0, "1", 1),
    ("fsdp2", 0, "tp2", 0),
    ("fsdp2", 0, "dp2", 0),
    ("fsdp2", 0, "tp2", 2),
    ("fsdp2", 0, "dp2", 2),
    ("fsdp4", 0, "tp2 x dp2", 0),
    ("fsdp4", 0, "dp4", 0),
)


@attrs.frozen
class Pair:
    """From where to where a model goes."""

    shape: ModelShape
    src: Sharding
    dst: Sharding

    @classmethod
    def of(cls, shape: ModelShape, move: tuple[str, int, str, int]) -> "Pair":
        """Read a row of the table."""
        trainer, first, generator, start = move
        layouts = Layout.parse(trainer), Layout.parse(generator)
        src = Sharding(layouts[0], range(first, first + layouts[0].size), element_bytes=4)
        dst = Sharding(layouts[1], range(start, start + layouts[1].size), Storage.ENGINE)
        return cls(shape, src, dst)


@attrs.frozen(eq=False)
class Ends:
    """What a rank has for one pair: its tensors, and what both ways to fill them take.

    Attributes:
        held, needed: by name.
        trainers: the mesh of those that hold chunks; None on other ranks.
        beyond: the first trainer and the ranks that hold nothing; None if there are none.
    """

    pair: Pair
    wire: Wire
    held: dict[str, Tensor]
    needed: dict[str, Tensor]
    move: Move
    checks: Checks
    trainers: DeviceMesh | None
    beyond: ProcessGroup | None

    @classmethod
    def of(cls, pair: Pair, rank: int, wire: Wire) -> "Ends":
        """Make tensors of random numbers, groups, and the rank's part of the plan."""
        plan = plan_reshard(pair.shape, pair.src, pair.dst, Machines.parse("8xH100"))
        inside = dist.new_group(list(pair.src.ranks))
        others = [rank for rank in pair.dst.ranks if rank not in pair.src.ranks]
        beyond = dist.new_group([pair.src.ranks[0], *others]) if others else None
        holds = rank in pair.src.ranks
        return cls(
            pair=pair,
            wire=wire,
            held=tensors(pair.src, pair.shape, rank, torch.float32, wire.device),
            needed=tensors(pair.dst, pair.shape, rank, wire.dtype, wire.device),
            move=move_of(plan, pair.shape, rank),
            checks=checks_of(plan, pair.shape, rank),
            trainers=DeviceMesh.from_group(inside, wire.device) if holds else None,
            beyond=beyond if rank in (pair.src.ranks[0], *others) else None,
        )

    def planned(self) -> int:
        """Bring what is lacking, point to point; return the bytes received."""
        return reshard(self.move, self.held, self.needed, self.wire).received

    def gathered(self) -> int:
        """Bring every tensor whole, and cut it; return the bytes received."""
        pair, received = self.pair, 0
        shards = pair.dst.tensors(self.move.rank, pair.shape) if self.needed else ()
        cuts = [(shard.tensor, piece) for shard in shards for piece in shard.pieces]
        for parameter in pair.shape.parameters():
            whole, more = self.whole(parameter)
            received += more
            for tensor, piece in cuts:
                if piece.parameter == parameter.name:
                    self.needed[tensor][view(piece.stored)].copy_(whole[view(piece.box)])
        return received

    def whole(self, parameter: Parameter) -> tuple[Tensor, int]:
        """Return a parameter, gathered by those that hold chunks, and the bytes received."""
        shape, received = torch.Size(parameter.shape), 0
        whole = torch.empty(shape, dtype=self.wire.dtype, device=self.wire.device)
        if self.trainers:
            chunk, stride = self.held[parameter.name], whole.stride()
            divided = DTensor.from_local(
                chunk, self.trainers, [Shard(0)], shape=shape, stride=stride, run_check=False
            )
            whole = divided.full_tensor().to(self.wire.dtype)
            received += (whole.numel() - chunk.numel()) * chunk.itemsize
        if self.beyond:
            dist.broadcast(whole, self.pair.src.ranks[0], group=self.beyond)
            received += whole.nbytes * (self.trainers is None)
        return whole, received

    def compared(self) -> int:
        """Compare checksums; hardly a byte is received."""
        compare(self.checks, self.held, self.needed, self.wire, numbers)
        return 0


def tensors(
    sharding: Sharding, shape: ModelShape, rank: int, dtype: torch.dtype, device: str
) -> dict[str, Tensor]:
    """Return random tensors of a rank, by name."""
    mine = sharding.tensors(rank, shape) if rank in sharding.ranks else ()
    return {shard.tensor: torch.randn(shard.shape, dtype=dtype, device=device) for shard in mine}


def view(box: Box) -> tuple[slice, ...]:
    """Return a box as an index."""
    return tuple(slice(*span) for span in box)


def timed(way: Callable[[], int], device: str) -> tuple[float, int]:
    """Return the seconds until all ranks are done, and the bytes that they have received."""
    dist.barrier()
    start = time.perf_counter()
    received = torch.tensor(way(), device=device)
    dist.all_reduce(received)
    total = int(received.item())
    return time.perf_counter() - start, total


def compare_ways(rank: int, address: str, shape: ModelShape, ranks: int, times: int) -> None:
    """Time all ways on one rank, in turns; rank 0 prints a row for each pair."""
    torch.set_num_threads(1)
    gpus = torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    device = "cuda" if gpus else "cpu"
    if gpus:
        torch.cuda.set_device(rank)
    own = Ranks(rank, ranks)
    join(own, connect(address, own))
    for move in MOVES:
        pair = Pair.of(shape, move)
        if not {*pair.src.ranks, *pair.dst.ranks} <= {*range(ranks)}:
            continue
        ends = Ends.of(pair, rank, Wire(torch.bfloat16, device))
        ways = ends.planned, ends.gathered, ends.compared
        turns = [[timed(way, device) for way in ways] for _ in range(times + 1)][1:]
        seconds = [statistics.median(each[i][0] for each in turns) for i in range(len(ways))]
        if rank == 0:
            print(row(move, turns[0][0][1], turns[0][1][1], seconds), flush=True)
    dist.destroy_process_group()


def row(move: tuple[str, int, str, int], planned: int, gathered: int, seconds: list[float]) -> str:
    """Return a line of the table: bytes and seconds of both ways, their ratios, and the check's."""
    trainer, first, generator, start = move
    ends = f"{trainer} at {first} -> {generator} at {start}"
    fast, slow, check = seconds
    return (
        f"{ends:28} {planned / 1e6:9.1f} {gathered / 1e6:9.1f} {gathered / planned:6.2f}"
        f" {fast:9.4f} {slow:9.4f} {slow / fast:6.2f} {check:9.4f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    config = known_shape("qwen2.5-0.5b").dimensions
    sizes = {"layers": given.layers, "hidden": given.hidden, "intermediate": 4 * given.hidden}
    heads = {"heads": given.hidden // 64, "kv_heads": 2, "head_dim": 64}
    shape = ModelShape("qwen2", "lm", attrs.evolve(config, **sizes, **heads, vocab=32_000))
    store = open_store("127.0.0.1")
    print(f"{shape.count / 1e6:.0f} million numbers, {given.ranks} ranks")
    heads_of = f"{'MB':>9} {'gathered':>9} {'ratio':>6} {'seconds':>9} {'gathered':>9} {'ratio':>6}"
    print(f"{'layouts':28} {heads_of} {'compare':>9}")
    address = f"127.0.0.1:{store.port}"
    mp.spawn(compare_ways, (address, shape, given.ranks, given.times), nprocs=given.ranks)


if __name__ == "__main__":
    main()
