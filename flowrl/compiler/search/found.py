"""The placement that a search found."""

from collections.abc import Mapping, Sequence

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.cost.step import Timeline
from flowrl.compiler.search.bound import Bounds
from flowrl.compiler.search.branch import Effort
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import Seated
from flowrl.compiler.search.tree import Node
from flowrl.compiler.tasks import Seat, home_of
from flowrl.ir.layout import Layout


@attrs.frozen
class PlacedPool:
    """Seats that share GPUs.

    Attributes:
        name: the user's; else the role or the seat that is there, `main` if all are.
        ranks: one after another.
        seats: in the order of the program.
    """

    name: str
    ranks: range
    seats: tuple[Seat, ...]


@attrs.frozen
class PlacedSeat:
    """Where and how a seat lives.

    Attributes:
        pool: its name.
        layout: of the weights over the pool.
        residency: what becomes of them while another seat of the pool works.
        cache_share: of a generate seat; see `Seated`.
    """

    pool: str
    layout: Layout
    residency: Residency
    cache_share: float = 1.0


@attrs.frozen
class Found:
    """The best placement.

    Attributes:
        pools: in the order of their ranks.
        seats: by seat, in the order of the program.
        timeline: when each task of a step runs, in seconds.
        gpus: that the pools have.
        moved: bytes of weights over links in a step.
        effort: how far the search went.
    """

    pools: tuple[PlacedPool, ...]
    seats: Mapping[Seat, PlacedSeat]
    timeline: Timeline
    gpus: int
    moved: int
    effort: Effort

    @property
    def seconds(self) -> float:
        """A step's, as predicted."""
        return self.timeline.seconds

    def seated(self, seat: Seat) -> Seated:
        """Return a seat as the cost models ask for it; see `home_of`."""
        home = home_of(seat, self.seats)
        its = self.seats[home]
        ranks = next(pool.ranks for pool in self.pools if pool.name == its.pool)
        return Seated(home, its.layout, ranks, its.cache_share)


def found(node: Node, bounds: Bounds, effort: Effort, constraints: Constraints) -> Found:
    """Return a complete node as a placement."""
    tree, seats = bounds.tree, bounds.table.seats
    ranks, key = tree.ranks(node.extents), bounds.key(node)
    assert ranks is not None, "a complete node's pools lie together"
    assert key is not None, "a complete node fits"
    members = [tuple(seats[s] for s in pool) for pool in node.partition.pools]
    names = _names(members, constraints)
    placed = {}
    for seat, its in enumerate(seats):
        option = node.options[tree.place[seat]]
        name = names[node.partition.pool_of[seat]]
        placed[its] = PlacedSeat(
            name, option.seated.layout, option.residency, option.seated.cache_share
        )
    pools = sorted(map(PlacedPool, names, ranks, members), key=lambda pool: pool.ranks[0])
    return Found(tuple(pools), placed, bounds.timeline(node), key[1], key[2], effort)


def _names(members: Sequence[Sequence[Seat]], constraints: Constraints) -> list[str]:
    """Return a name for each pool, each different."""
    if len(members) == 1:
        return [constraints.name(members[0]) or "main"]
    pools_of: dict[str, set[int]] = {}
    for number, seats in enumerate(members):
        for seat in seats:
            pools_of.setdefault(seat.role, set()).add(number)
    taken = set(constraints.pools.values())
    names = []
    for seats in members:
        first = seats[0].role if len(pools_of[seats[0].role]) == 1 else str(seats[0])
        free = first if first not in taken else f"{first}'"
        names.append(constraints.name(seats) or free)
    return names
