"""What the user has decided already."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.search.space import Block, Extent, sizes
from flowrl.compiler.tasks import Seat
from flowrl.errors import RunFileError, nearest
from flowrl.ir.layout import Layout

ANEW = ("drop", "alias")
"""Residencies of weights that are trained in another seat."""


def _fixed(pairs: Mapping | None) -> dict:  # type: ignore[type-arg]
    return dict(pairs or {})


@attrs.frozen
class Constraints:
    """Decisions of the user, which every placement keeps.

    Attributes:
        pools: the pool of a seat, by name: seats of one name are together, of two names apart.
        gpus: how many GPUs a named pool has; any number.
        kinds: which GPUs a named pool lies on: `H100`.
        layouts: the layout of a seat.
        axes: of a use, or of a seat as `role.use`, which counts first: the axes that its engine
            can divide weights over, `dp`, `fsdp`, ...; all where nothing is said. A layout that
            is decided may have others.
        residencies: what a seat does while another works.
        together: groups of seats that share a pool.
        apart: groups of seats of which no two do.
        most_gpus: the most GPUs that all pools may have.
    """

    pools: Mapping[Seat, str] = attrs.field(factory=dict, converter=_fixed)
    gpus: Mapping[str, int] = attrs.field(factory=dict, converter=_fixed)
    kinds: Mapping[str, str] = attrs.field(factory=dict, converter=_fixed)
    layouts: Mapping[Seat, Layout] = attrs.field(factory=dict, converter=_fixed)
    axes: Mapping[str, Collection[str]] = attrs.field(factory=dict, converter=_fixed)
    residencies: Mapping[Seat, Residency] = attrs.field(factory=dict, converter=_fixed)
    together: tuple[frozenset[Seat], ...] = ()
    apart: tuple[frozenset[Seat], ...] = ()
    most_gpus: int | None = None

    def seats(self, all_seats: Sequence[Seat]) -> tuple[Seat, ...]:
        """Return the seats that need a place.

        A model that is trained scores where it is, unless its score seat is named here.
        """
        trained = {seat.role for seat in all_seats if seat.use == "train"}
        return tuple(
            seat
            for seat in all_seats
            if seat.use != "score" or seat.role not in trained or seat in self.named
        )

    @property
    def named(self) -> set[Seat]:
        """The seats that anything is decided for."""
        each = {*self.pools, *self.layouts, *self.residencies}
        return each.union(*self.together, *self.apart)

    def __str__(self) -> str:
        parts = [f"{seat} in the pool {name}" for seat, name in self.pools.items()]
        parts += [f"{name} of {gpus} GPUs" for name, gpus in self.gpus.items()]
        parts += [f"{name} on {kind}" for name, kind in self.kinds.items()]
        parts += [f"{seat} in {layout}" for seat, layout in self.layouts.items()]
        parts += [f"{use} over {' and '.join(axes)} only" for use, axes in self.axes.items()]
        parts += [f"{seat} {residency}" for seat, residency in self.residencies.items()]
        parts += [f"{_names(its)} together" for its in self.together]
        parts += [f"{_names(its)} apart" for its in self.apart]
        parts += [f"at most {self.most_gpus} GPUs"] if self.most_gpus else []
        return ", ".join(parts)

    def check(self, seats: Sequence[Seat]) -> None:
        """Raise RunFileError if a decision is for none of the seats, or can't be kept."""
        pools = sorted(set(self.pools.values()))
        for name in sorted({*self.gpus, *self.kinds} - set(pools)):
            raise RunFileError(
                f"the pool `{name}` has GPUs, but no model{nearest(name, pools)}",
                hint="place a use of a model there, or leave its size to the search",
            )
        for seat in sorted(self.named - set(seats), key=str):
            known = [str(its) for its in seats]
            raise RunFileError(
                f"`{seat}` is placed, but no op of the program uses it{nearest(str(seat), known)}",
                hint=f"the program uses {', '.join(known)}",
            )
        trained = {seat.role for seat in seats if seat.use == "train"}
        for seat, residency in self.residencies.items():
            if error := unbrought(seat, residency, trained):
                raise error

    def allow(self, seats: Sequence[Seat], groups: Sequence[int]) -> bool:
        """Return whether seats may share pools so; `groups` is the pool of each, by number."""
        group = dict(zip(seats, groups, strict=True))
        names = {
            name: {group[s] for s in self.pools if self.pools[s] == name and s in group}
            for name in dict.fromkeys(self.pools.values())
        }
        used = [g for its in names.values() for g in its]
        return (
            all(len(its) <= 1 for its in names.values())
            and len(set(used)) == len(used)
            and all(len({group[s] for s in its if s in group}) <= 1 for its in self.together)
            and all(
                len({group[s] for s in its if s in group}) == len([s for s in its if s in group])
                for its in self.apart
            )
        )

    def lays_out(self, seat: Seat, layout: Layout) -> bool:
        """Return whether a seat may have a layout."""
        if seat in self.layouts:
            return layout == self.layouts[seat]
        allowed = self.axes.get(str(seat), self.axes.get(seat.use, layout.axes))
        return all(axis in allowed for axis, size in layout.axes.items() if size > 1)

    def name(self, seats: Sequence[Seat]) -> str | None:
        """Return the name that the user gave the pool of these seats, if any."""
        return next((self.pools[seat] for seat in seats if seat in self.pools), None)

    def extents(self, seats: Sequence[Seat], blocks: Sequence[Block]) -> tuple[Extent, ...]:
        """Return what a pool of these seats may be."""
        name = self.name(seats) or ""
        out = []
        for i, block in enumerate(blocks):
            if self.kinds.get(name, block.gpu) != block.gpu:
                continue
            fixed = self.gpus.get(name)
            allowed = sizes(block) if fixed is None else (fixed,)
            out += [Extent(i, gpus) for gpus in allowed if gpus <= block.nodes * block.per_node]
        return tuple(out)


def unbrought(seat: Seat, residency: str, trained: Collection[str]) -> RunFileError | None:
    """Return what is wrong with a residency that lets weights go, if nothing brings them back.

    Args:
        seat: a use of a model.
        residency: what it does while another works.
        trained: the models that are trained.
    """
    if residency not in ANEW or (seat.use != "train" and seat.role in trained):
        return None
    return RunFileError(
        f"`{seat}` has the residency `{residency}`, but no other use of `{seat.role}` trains the "
        "weights, so nothing would bring them back",
        hint="let it be `resident`, or go to host memory with `offload`",
    )


def _names(seats: frozenset[Seat]) -> str:
    return " and ".join(sorted(map(str, seats)))
