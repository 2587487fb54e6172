"""Everything the search asks of the costs, asked once: of seats and pools, by extent."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.cost.step import homes
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import RESIDENCIES, Costs, Seated
from flowrl.compiler.search.space import Extent, blocks_of
from flowrl.compiler.search.terms import Option, Terms, fits, least, options
from flowrl.compiler.tasks import Task, seats_of

Near = Literal["same", "node", "apart"]
"""How two pools lie: they are one; in one node; in different nodes."""

Choices = Mapping[Residency, tuple[Option, ...]]


class Table:
    """Terms of every seat and pool, made when first asked for.

    Attributes:
        tasks: of the step.
        seats: that need a place.
        home: the seat of each task, by number.
        trainer: for each seat whose weights another seat trains, that seat.
        blocks: of the machines.
    """

    def __init__(self, tasks: Sequence[Task], costs: Costs, constraints: Constraints) -> None:
        self.tasks, self.costs, self.constraints = tuple(tasks), costs, constraints
        self.seats = constraints.seats(seats_of(self.tasks))
        self.home = homes(self.tasks, self.seats)
        self.blocks = blocks_of(costs.machines)
        trains = {seat.role: i for i, seat in enumerate(self.seats) if seat.use == "train"}
        self.trainer = tuple(
            trains.get(seat.role) if seat.use != "train" else None for seat in self.seats
        )
        self.tied = tuple(  # seats with weights that another seat has too
            self.trainer[i] is not None or i in self.trainer for i in range(len(self.seats))
        )
        self.work = tuple(
            tuple(i for i, home in enumerate(self.home) if home == seat)
            for seat in range(len(self.seats))
        )
        self.options = cache(self._options)
        self.choices = cache(self._choices)
        self.floor = cache(self._floor)
        self.extents = cache(self._extents)
        self.bring = cache(self._bring)
        self.fits = cache(self._fits)
        self.capacity = cache(self._capacity)

    def ranks(self, extent: Extent) -> range:
        """Return ranks of this extent; any others of it cost the same."""
        first = self.blocks[extent.block].first
        return range(first, first + extent.gpus)

    def _capacity(self, extent: Extent) -> tuple[int, int]:
        """Return bytes of a GPU, and of host memory per GPU."""
        return self.costs.capacity(self.ranks(extent))

    def _options(self, seat: int, extent: Extent) -> tuple[Option, ...]:
        its, ranks, fixed = self.seats[seat], self.ranks(extent), self.constraints
        wanted = fixed.layouts.get(its)
        layouts = self.costs.layouts(its, ranks) if wanted is None else (wanted,)
        several = [
            Seated(its, layout, ranks, share)
            for layout in layouts
            if layout.size == extent.gpus and fixed.lays_out(its, layout)
            for share in self.costs.cache_shares(its)
        ]
        allowed = self.costs.residencies(its)
        if its in fixed.residencies:
            allowed = [fixed.residencies[its]]
        if self.trainer[seat] is None:  # nowhere to bring weights from, or to read them
            allowed = [r for r in allowed if r in ("resident", "offload")]
        tasks = [self.tasks[i] for i in self.work[seat]]
        return options(self.costs, tasks, several, allowed, tied=self.tied[seat])

    def _choices(self, pool: tuple[int, ...], extent: Extent) -> tuple[Choices, ...] | None:
        """Return what each seat of a pool may choose, or None if nothing fits.

        Left out are choices that don't fit even with the least of all others.
        """
        capacity = self.capacity(extent)
        every = [self._here(seat, pool, extent) for seat in pool]
        if not all(every):
            return None
        lows = [least(options) for options in every]
        kept: list[Choices] = []
        for i, its in enumerate(every):
            fit = [o for o in its if fits([*lows[:i], o, *lows[i + 1 :]], capacity)]
            if not fit:
                return None
            kept.append(_by_residency(fit))
        return tuple(kept)

    def _here(self, seat: int, pool: tuple[int, ...], extent: Extent) -> list[Option]:
        """Return the choices of a seat in a pool; alone, it need not make room."""
        beside = self.trainer[seat] in pool
        every = [o for o in self.options(seat, extent) if beside or o.residency != "alias"]
        if len(pool) > 1:
            return every
        stays = {o.seated: o for o in every if o.residency == "resident"}
        return [o for o in every if not _needless(o, stays.get(o.seated, o))]

    def _floor(
        self, pool: tuple[int, ...], extent: Extent, seat: int, residency: Residency | None
    ) -> Terms:
        """Return the least of a seat's choices in a pool that may fit, by residency or of all."""
        choices = self.choices(pool, extent)
        assert choices is not None
        its = choices[pool.index(seat)]
        some = [o for r, options in its.items() if residency in (None, r) for o in options]
        return least(some)

    def _extents(self, pool: tuple[int, ...]) -> tuple[Extent, ...]:
        """Return the extents in which a pool may fit, the smallest first."""
        allowed = self.constraints.extents([self.seats[seat] for seat in pool], self.blocks)
        fit = [extent for extent in allowed if self.choices(pool, extent) is not None]
        return tuple(sorted(fit, key=lambda extent: (extent.gpus, extent.block)))

    def least_seconds(self, seat: int) -> float:
        """Return the seconds of a seat's tasks in the largest pool that it fits in by itself."""
        extents = self.extents((seat,))
        return sum(self.floor((seat,), extents[-1], seat, None).seconds) if extents else 0.0

    def _fits(self, pool: tuple[Terms, ...], extent: Extent) -> bool:
        return fits(pool, self.capacity(extent))

    def _bring(self, source: Option, target: Option, near: Near, exact: bool) -> tuple[int, float]:
        """Return bytes over links and seconds to bring weights to a seat, or what they exceed."""
        ask = self.costs.reshard if exact else self.costs.reshard_floor
        return ask(source.seated, self.beside(source, target, near))

    def beside(self, source: Option, target: Option, near: Near) -> Seated:
        """Return the target on ranks that lie so from the source's; any such cost the same."""
        a, b = source.seated.ranks, target.seated.ranks
        first, per_node = b[0], self.costs.machines.nodes[self.costs.machines.node(b[0])].count
        if near == "node":
            first += len(a)
        elif near == "apart" and a[0] == first:  # of one block, after the source's nodes
            first += -(-len(a) // per_node) * per_node
        return attrs.evolve(target.seated, ranks=range(first, first + len(b)))


def _needless(option: Option, stays: Option) -> bool:
    """Return whether a seat that is alone can as well be resident in the same layout."""
    mine, its = option.bytes, stays.bytes
    return option is not stays and its.awake <= mine.awake and its.host <= mine.host


def _by_residency(options: Sequence[Option]) -> Choices:
    known = (kind for kind in RESIDENCIES if any(o.residency == kind for o in options))
    return {kind: tuple(o for o in options if o.residency == kind) for kind in known}
