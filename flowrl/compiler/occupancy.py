"""Memory of the GPUs of a plan, while each of its seats works."""

from collections.abc import Iterator, Mapping

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.planning import Planned
from flowrl.compiler.search import ModelCosts
from flowrl.compiler.search.costs import Seated
from flowrl.compiler.tasks import Seat


@attrs.frozen
class Occupancy:
    """Memory of the fullest GPU of a pool while one seat works.

    Attributes:
        pool: its name.
        seat: that works.
        residency: what becomes of it while another does.
        items: what that one takes, in bytes.
        asleep: what each other seat of the pool takes meanwhile, in bytes.
        host: what it has in host memory, for each GPU, in bytes.
        capacity: of the GPU, in bytes.
    """

    pool: str
    seat: Seat
    residency: Residency
    items: Mapping[str, int]
    asleep: Mapping[str, int]
    host: int
    capacity: int

    @property
    def total(self) -> int:
        """Bytes in use."""
        return sum(self.items.values()) + sum(self.asleep.values())


def occupancies(planned: Planned) -> Iterator[Occupancy]:
    """Yield the memory of each pool while each seat of it works; an evaluation's is the last.

    Args:
        planned: a step with a placement, and the evaluation beside it, if it has one.
    """
    costs, own = planned.costs, planned.evaluation
    for seat, its in planned.found.seats.items():
        asleep = _others(planned, costs, its.pool, seat) | _evaluator(planned, seat)
        yield _working(costs, its.pool, planned.found.seated(seat), its.residency, asleep)
    if own:
        asleep = _others(planned, own.costs, own.pool, own.seated.seat)
        yield _working(own.costs, own.pool, own.seated, own.asked.residency, asleep)


def _working(
    costs: ModelCosts, pool: str, seated: Seated, residency: Residency, asleep: Mapping[str, int]
) -> Occupancy:
    return Occupancy(
        pool,
        seated.seat,
        residency,
        costs.items(seated, residency),
        asleep,
        costs.memory(seated, residency).host,
        costs.capacity(seated.ranks)[0],
    )


def _others(planned: Planned, costs: ModelCosts, pool: str, working: Seat) -> dict[str, int]:
    """Return the bytes that each other seat of the step takes in a pool while one works."""
    found = planned.found
    return {
        str(seat): costs.memory(found.seated(seat), its.residency).asleep
        for seat, its in found.seats.items()
        if its.pool == pool and seat != working
    }


def _evaluator(planned: Planned, seat: Seat) -> dict[str, int]:
    """Return what an evaluation's engine takes while a seat of its pool works.

    A trainer that it stays beside has it among its own items, awake and asleep.
    """
    own = planned.evaluation
    if own is None or own.pool != planned.found.seats[seat].pool:
        return {}
    counted = planned.target.workload.settings(own.source.seat.role).evaluates
    return {} if counted else {str(own.seated.seat): own.asleep}
