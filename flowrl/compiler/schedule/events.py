"""What ranks do for one op of a lowered graph: compute, and meet along the axes of its layout."""

from collections.abc import Iterator, Sequence
from functools import cache

import attrs

from flowrl.ir.layout import Layout

Groups = tuple[Sequence[int], ...]

EXCHANGES = (("all-reduce", "tp"), ("all-to-all", "ep"))
"""In each layer of a pass: hidden states are summed (Shoeybi et al. 2019, arXiv:1909.08053, sec.
3), and tokens go to their experts and back (Lepikhin et al. 2020, arXiv:2006.16668, sec. 3)."""


@attrs.frozen
class Event:
    """What some ranks do at one place of the program; once a layer or a microbatch, if it is so.

    Attributes:
        op: the op, as `%9 update policy`.
        loc: its line in the program.
        does: `compute`, `all-reduce`, `send`, ...
        along: the axis of the layout that it goes along; `pool` is all of its ranks.
        groups: the ranks that meet, each group by itself; of one rank, it acts alone.
    """

    op: str
    loc: str
    does: str
    along: str
    groups: Groups

    @property
    def collective(self) -> bool:
        """Whether ranks meet in it."""
        return any(len(group) > 1 for group in self.groups)

    def __str__(self) -> str:
        return f"{self.does} ({self.along}) in `{self.op}` ({self.loc})"


@attrs.frozen
class Mesh:
    """Ranks under a layout, and the op that they work on.

    Attributes:
        op: as of an event.
        loc: as of an event.
        layout: of the model.
        ranks: of its pool, in the order of the layout's mesh.
    """

    op: str
    loc: str
    layout: Layout
    ranks: range

    def score(self) -> Iterator[Event]:
        """Yield what a forward pass does: rows go out, and what is asked for comes back."""
        yield from self._pool("scatter")
        yield from self._forward()
        yield from self._pool("gather")

    def generate(self) -> Iterator[Event]:
        """Yield what sampling does: a pass a token, whose last stage tells the first what it is."""
        yield from self._pool("scatter")
        yield from self._forward()
        last = self.layout.pp - 1
        yield from self._event("send", "pp", self._between(last, 0) if last else ())
        yield from self._pool("gather")

    def update(self, passes: int) -> Iterator[Event]:
        """Yield what an update does: passes forward, one backward, gradients, their norm.

        ZeRO's third stage gathers weights for each pass and scatters gradients after the last
        (Rajbhandari et al. 2019, arXiv:1910.02054, sec. 7.2.2).
        """
        yield from self._pool("scatter")
        for _ in range(passes):
            yield from self._forward()
        for stage in reversed(range(self.layout.pp)):
            yield from self._stage(stage)
            yield from self._event("reduce-scatter", "fsdp", self._along("fsdp", stage))
            yield from self._event("send", "pp", self._between(stage, stage - 1) if stage else ())
        for axis in ("ep", "dp"):
            every = (self._along(axis, stage) for stage in range(self.layout.pp))
            yield from self._event("all-reduce", axis, sum(every, ()))
        yield from self._pool("all-reduce")

    def alone(self) -> Iterator[Event]:
        """Yield what each rank does to its own shard."""
        yield from self._event("compute", "alone", tuple((rank,) for rank in self.ranks))

    def _forward(self) -> Iterator[Event]:
        for stage in range(self.layout.pp):
            yield from self._stage(stage)
            more = stage + 1 < self.layout.pp
            yield from self._event("send", "pp", self._between(stage, stage + 1) if more else ())

    def _stage(self, stage: int) -> Iterator[Event]:
        yield from self._event("all-gather", "fsdp", self._along("fsdp", stage))
        own = tuple((rank,) for rank in self._ranks(stage))
        yield from self._event("compute", "alone", own)
        for does, axis in EXCHANGES:
            yield from self._event(does, axis, self._along(axis, stage))

    def _pool(self, does: str) -> Iterator[Event]:
        yield from self._event(does, "pool", (self.ranks,) if len(self.ranks) > 1 else ())

    def _event(self, does: str, along: str, groups: Groups) -> Iterator[Event]:
        if groups:
            yield Event(self.op, self.loc, does, along, groups)

    def _ranks(self, stage: int) -> range:
        each = self.layout.size // self.layout.pp
        return self.ranks[stage * each : (stage + 1) * each]

    def _along(self, axis: str, stage: int) -> Groups:
        return along(self.layout, axis, self._ranks(stage))

    def _between(self, stage: int, other: int) -> Groups:
        return tuple(zip(self._ranks(stage), self._ranks(other), strict=True))


@cache
def along(layout: Layout, axis: str, ranks: range) -> Groups:
    """Return the groups of a stage's ranks that differ along one axis only; () if it has size 1."""
    size, stride = layout.axes[axis], layout.stride(axis)
    if size == 1:
        return ()
    firsts = (i for i in range(len(ranks)) if i // stride % size == 0)
    return tuple(ranks[i : i + stride * size : stride] for i in firsts)
