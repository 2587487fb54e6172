"""What seats that share GPUs do before each op: sleep, wake, offload, drop, get their weights."""

from collections.abc import Iterator, Sequence

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.cost.step import Slot, slots
from flowrl.compiler.planning import Planned
from flowrl.compiler.search import Bytes, PlacedSeat
from flowrl.compiler.tasks import Seat, Task
from flowrl.ir.action import ENTERS, LEAVES, Action, Does


@attrs.frozen
class Stay:
    """What a seat's residency comes to.

    Attributes:
        seat: a use of a model.
        pool: where it lives.
        residency: what becomes of it while another seat works.
        bytes: that it takes awake and asleep.
        wake: seconds to take the pool.
        sleep: seconds to leave it.
        changes: whether it trains, so that a copy on the host is old when it leaves.
        brought: bytes over links that bring its weights.
        bring: seconds of that.
        moved: bytes that go to the host when it leaves, and come back.
    """

    seat: Seat
    pool: str
    residency: Residency
    bytes: Bytes
    wake: float = 0.0
    sleep: float = 0.0
    changes: bool = False
    brought: int = 0
    bring: float = 0.0
    moved: int = 0


def residency(planned: Planned) -> tuple[Action, ...]:
    """Return what the seats of a planned step do before its ops, in the order of the program.

    Requires: a placement that fits, as the search's does, and the lowered graph's tasks. Ensures:
    the seat of an op is awake when it runs, with the newest weights; what leaves a pool comes back
    before its next use, as steps follow one another.
    """
    return actions(planned.tasks, stays(planned))


def actions(tasks: Sequence[Task], stays: Sequence[Stay]) -> tuple[Action, ...]:
    """Return the actions before each task.

    Args:
        tasks: of a step, in program order.
        stays: of every seat that has a place.
    """
    names = list(dict.fromkeys(stay.pool for stay in stays))
    placed = slots(tasks, [s.seat for s in stays], [names.index(s.pool) for s in stays])
    return tuple(
        action
        for task, slot in zip(tasks, placed, strict=True)
        for action in _before(task, slot, stays)
    )


def stays(planned: Planned) -> tuple[Stay, ...]:
    """Return what the residencies of a placement come to."""
    return tuple(_stay(planned, seat, its) for seat, its in planned.found.seats.items())


def _stay(planned: Planned, seat: Seat, its: PlacedSeat) -> Stay:
    costs, found = planned.costs, planned.found
    seated, trainer = found.seated(seat), Seat(seat.role, "train")
    wake, sleep = costs.wake(seated, its.residency)
    moved, took = 0, 0.0
    if trainer in found.seats and seat != trainer and its.residency != "alias":
        moved, took = costs.reshard(found.seated(trainer), seated)
    size = costs.memory(seated, its.residency)
    left = costs.itemised(seated).leaves(its.residency)
    changes, where = seat == trainer, (seat, its.pool, its.residency)
    return Stay(*where, size, wake, sleep, changes, brought=moved, bring=took, moved=left)


def _before(task: Task, slot: Slot, stays: Sequence[Stay]) -> Iterator[Action]:
    for old, new, turns in slot.switches:
        yield _leave(task, stays[old], turns)
        yield _enter(task, stays[new], turns)
    its = stays[slot.seat]
    brought = slot.brought(drops=its.residency == "drop")
    if brought and its.residency != "alias":
        yield attrs.evolve(
            _action(task, its, brought, Does.BRING),
            moved=its.brought,
            seconds=its.bring,
            by=task.weights,
        )


def _leave(task: Task, stay: Stay, turns: range) -> Action:
    of = stay.bytes
    return attrs.evolve(
        _action(task, stay, turns, LEAVES[stay.residency]),
        bytes=of.asleep - of.awake,
        moved=stay.moved if stay.changes else 0,
        seconds=stay.sleep,
    )


def _enter(task: Task, stay: Stay, turns: range) -> Action:
    of = stay.bytes
    return attrs.evolve(
        _action(task, stay, turns, ENTERS[stay.residency]),
        bytes=of.awake - of.asleep,
        moved=stay.moved,
        seconds=stay.wake,
    )


def _action(task: Task, stay: Stay, turns: range, does: Does) -> Action:
    return Action(task.name, (turns.start, turns.stop), stay.pool, str(stay.seat), does)
