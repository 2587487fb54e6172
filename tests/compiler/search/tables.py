"""Costs from tables of numbers, drawn at random."""

from random import Random

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.search.costs import Bytes
from flowrl.ir.layout import Layout

LAYOUTS = ("fsdp", "tp", "dp")


@attrs.frozen
class TableCosts:
    """Every number is drawn anew from the seed and the question, so that equals answer equally.

    Attributes:
        machines: what there is.
        seed: of the numbers.
        variety: layouts of each size.
        kinds: the residencies of every seat.
        memory_bytes: of a GPU; seats take up to 10 awake.
        caches: shares of the KV cache.
        coarse: seconds are small whole numbers, so that many placements are equal.
    """

    machines: Machines
    seed: int
    variety: int = 2
    kinds: tuple[str, ...] = ("resident", "offload", "drop", "alias")
    memory_bytes: int = 20
    coarse: bool = False
    caches: int = 1

    def draw(self, *question) -> Random:
        return Random(f"{self.seed} {question}")

    def where(self, ranks):
        return self.machines.gpu(ranks[0]).name, len(ranks)

    def layouts(self, seat, ranks):
        names = LAYOUTS if len(ranks) > 1 else ("",)
        return [Layout.parse(f"{name}{len(ranks)}") for name in names[: self.variety]]

    def cache_shares(self, seat):
        return (1.0, 0.5)[: self.caches] if seat.use == "generate" else (1.0,)

    def residencies(self, seat):
        return self.kinds[: 2 if seat.use == "train" else 4]

    def seconds(self, task, use):
        random = self.draw(
            "seconds", task.name, use.seat, use.layout, use.cache_share, self.where(use.ranks)
        )
        return (
            float(random.randint(0, 4))
            if self.coarse
            else random.uniform(1, 9) / len(use.ranks) ** 0.7
        )

    def memory(self, use, residency):
        random = self.draw("memory", use.seat, use.layout, use.cache_share, self.where(use.ranks))
        asleep, awake = sorted((random.randint(0, 10), random.randint(0, 10)))
        gone = residency in ("offload", "drop", "alias")
        return Bytes(awake, 0 if gone else asleep, asleep if residency == "offload" else 0)

    def items(self, use, residency):
        return {"everything": self.memory(use, residency).awake}

    def capacity(self, ranks):
        return self.memory_bytes, 12

    def wake(self, use, residency):
        random = self.draw("wake", use.seat, use.layout, self.where(use.ranks))
        if residency != "offload":
            return 0.0, 0.0
        return (1.0, 1.0) if self.coarse else (random.random(), random.random())

    def reshard(self, source, target):
        ends = [(use.seat, use.layout, self.where(use.ranks)) for use in (source, target)]
        random = self.draw("reshard", *ends, self.near(source.ranks, target.ranks))
        return random.randint(0, 3), float(random.randint(0, 1)) if self.coarse else random.random()

    def reshard_floor(self, source, target):
        moved, seconds = self.reshard(source, target)
        share = self.draw("floor", source.layout, target.layout).choice([0, 0.5, 1])
        return int(moved * share), seconds * share

    def near(self, a, b):
        nodes = [{self.machines.node(rank) for rank in ranks} for ranks in (a, b)]
        return "same" if a == b else "node" if nodes[0] & nodes[1] else "apart"

    def aliases(self, source, target):
        assert source.ranks == target.ranks
        return source.layout == target.layout
