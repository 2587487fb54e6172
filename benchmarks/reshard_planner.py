"""Reshard plans of real models: bytes against the lower bound, predicted and planning seconds.

    python benchmarks/reshard_planner.py [--pairs N]

First the moves that runs make, a trainer in float32 to an engine in bfloat16; then `N` random pairs
of layouts on random ranks of 4 nodes, of which the worst ratio and the slowest plan are shown.
"""

import argparse
import random
import time
from collections.abc import Iterator

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage, matched, misfit
from flowrl.compiler.reshard import ReshardPlan, plan_reshard
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.shapes.known import known_shape
from flowrl.ir.layout import AXES, Layout

MOVES = (
    # model, trainer, from rank; generator, from rank; GPUs
    ("qwen2.5-7b", "fsdp8", 0, "tp4 x dp2", 0, "8xH100"),
    ("qwen2.5-7b", "fsdp64", 0, "tp1 x dp64", 0, "8x8xH100"),
    ("qwen2.5-7b", "fsdp8", 0, "tp2 x dp28", 8, "8x8xH100"),
    ("llama-3.1-70b", "fsdp64", 0, "tp8 x dp8", 0, "8x8xH100"),
    ("llama-3.1-70b", "fsdp32", 0, "tp8 x dp4", 32, "8x8xH100"),
    ("llama-3.1-70b", "pp4 x tp8 x dp2", 0, "tp8 x dp8", 0, "8x8xH100"),
    ("qwen3-30b-a3b", "fsdp64", 0, "tp4+ep x dp16", 0, "8x8xH100"),
    ("llama-3.1-70b", "fsdp1024", 0, "tp8 x dp128", 0, "128x8xH100"),
    ("llama-3.1-70b", "fsdp256", 0, "tp8 x dp96", 256, "128x8xH100"),
)
RANDOM = ("smollm2-135m", "qwen2.5-7b", "mixtral-8x7b", "llama-2-70b")
FACTORS = ((), (2,), (3,), (2, 2), (2, 3), (2, 2, 2), (2, 2, 3), (2, 2, 2, 2), (2, 2, 2, 2, 2))


@attrs.frozen
class Timed:
    """A plan and the seconds that it took to make."""

    plan: ReshardPlan
    seconds: float

    @classmethod
    def of(cls, shape: ModelShape, src: Sharding, dst: Sharding, machines: Machines) -> "Timed":
        """Make it."""
        start = time.perf_counter()
        plan = plan_reshard(shape, src, dst, machines)
        return cls(plan, time.perf_counter() - start)

    def row(self, name: str) -> str:
        """Return a line of the table."""
        plan = self.plan
        ends = f"{plan.src.layout} -> {plan.dst.layout}"
        return (
            f"{name:14} {ends:32} {plan.bytes_moved / 1e9:9.1f} {plan.ratio:6.2f} "
            f"{plan.seconds:9.3f} {self.seconds:8.2f}  {plan.bottleneck.link}"
        )


def moves() -> Iterator[tuple[str, Timed]]:
    """Yield the plans of real moves, and those of the same with matched shards on the same GPUs."""
    for name, trainer, first, generator, start, gpus in MOVES:
        shape, machines = known_shape(name), Machines.parse(gpus)
        layouts = Layout.parse(trainer), Layout.parse(generator)
        src = Sharding(layouts[0], range(first, first + layouts[0].size), element_bytes=4)
        dst = Sharding(layouts[1], range(start, start + layouts[1].size), Storage.ENGINE)
        yield name, Timed.of(shape, src, dst, machines)
        if src.ranks == dst.ranks and layouts[0].fsdp > 1 and layouts[1].tp > 1:
            yield name, Timed.of(shape, matched(dst), dst, machines)


def drawn(shape: ModelShape, draw: random.Random, size: int) -> Sharding:
    """Return a random layout on random ranks."""
    found = Layout(along_tp=draw.random() < 0.5, whole_experts=draw.random() < 0.5)
    for factor in draw.choice(FACTORS):
        grown = [attrs.evolve(found, **{axis: found.axes[axis] * factor}) for axis in AXES]
        found = draw.choice([layout for layout in grown if not misfit(shape, layout)])
    ranks = draw.sample(range(size), found.size)
    return Sharding(found, ranks, draw.choice(list(Storage)), draw.choice([2, 4]))


def pairs(count: int) -> Iterator[Timed]:
    """Yield plans between random shardings."""
    draw, machines = random.Random(0), Machines.parse("2x8xH100 + 2x8xA100-80G")
    for _ in range(count):
        shape = known_shape(draw.choice(RANDOM))
        yield Timed.of(shape, *(drawn(shape, draw, machines.size) for _ in range(2)), machines)


def main() -> None:
    """Print the table, and the worst of the random pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    count = parser.parse_args().pairs
    heads = f"{'GB':>9} {'ratio':>6} {'seconds':>9} {'planned':>8}  bottleneck"
    print(f"{'model':14} {'layouts':32} {heads}")
    for name, timed in moves():
        print(timed.row(name))
    found = list(pairs(count))
    worst = max((timed.plan.ratio for timed in found), default=1.0)
    slowest = max((timed.seconds for timed in found), default=0.0)
    print(f"{count} random pairs: ratio at most {worst:.2f}, planned in at most {slowest:.2f} s")


if __name__ == "__main__":
    main()
