"""The seconds of a step: its tasks in program order, each in its pool, with what they wait for."""

from collections.abc import Sequence

import attrs

from flowrl.compiler.tasks import Seat, Task, home_of, loop_of


@attrs.frozen
class Slot:
    """What one task waits for and brings about, once each seat has a pool; no seconds yet.

    Attributes:
        seat: whose weights it uses, by its place in the list of seats.
        pool: where it runs, by number.
        after: the tasks whose results it needs.
        switches: `(from, to, turns)`: the seats that leave and take the pool on the way to this
            task, and before which turns of its loop; before turn 0 if it is in none. Steps follow
            one another, so the first task of a pool comes after its last.
        refreshes: the turns before which its weights are older than the last update, so must be
            brought.
        returns: the turns before which a seat must bring its weights that drops them: those, and
            whenever it takes the pool.
        source: the pool that trains its model, if another seat does.
    """

    seat: int
    pool: int
    after: tuple[int, ...]
    switches: tuple[tuple[int, int, range], ...] = ()
    refreshes: range = range(0)
    returns: range = range(0)
    source: int | None = None

    def brought(self, *, drops: bool) -> range:
        """Return before which turns weights are brought, if the seat drops them or not."""
        return self.returns if drops else self.refreshes


@attrs.frozen
class Timeline:
    """When each task of a step runs, in seconds from the step's start.

    Attributes:
        starts: when its pool begins to make room and to bring weights for it.
        computes: when its own work begins.
        ends: when it ends.
    """

    starts: tuple[float, ...]
    computes: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The step's: the last end, in seconds."""
        return max(self.ends, default=0.0)


def homes(tasks: Sequence[Task], seats: Sequence[Seat]) -> tuple[int, ...]:
    """Return the seat of each task, by number; see `home_of`."""
    number = {seat: i for i, seat in enumerate(seats)}
    return tuple(number[home_of(task.seat, number)] for task in tasks)


def slots(tasks: Sequence[Task], seats: Sequence[Seat], pools: Sequence[int]) -> tuple[Slot, ...]:
    """Return what each task waits for when the seats live in these pools.

    A seat takes the pool once before tasks of a loop, and once a turn if other seats take it in
    between; of nested loops, the innermost counts the turns. Weights used in the loop that updates
    them are brought each turn that comes after an update.

    Args:
        tasks: of a step, in program order.
        seats: of the tasks; a score seat may be left out where its model is trained.
        pools: the pool of each seat, by number.
    """
    seat_of = homes(tasks, seats)
    trained = {seat.role: pools[i] for i, seat in enumerate(seats) if seat.use == "train"}
    stale = [seat.use != "train" and seat.role in trained for seat in seats]
    out = []
    for i, task in enumerate(tasks):
        seat = seat_of[i]
        switches = _switches(tasks, seat_of, pools, i)
        slot = Slot(seat, pools[seat], task.after, switches)
        if seats[seat].use != "train" and seats[seat].role in trained:
            old = _old(tasks, seat_of, i, stale=stale[seat])
            returns = _joined(old, *(when for *_, when in switches))
            source = trained[seats[seat].role]
            slot = attrs.evolve(slot, refreshes=old, returns=returns, source=source)
            stale[seat] = False
        if _updates(task, task.seat.role):
            for other, its in enumerate(seats):
                stale[other] |= its.use != "train" and its.role == task.seat.role
        out.append(slot)
    return tuple(out)


def timeline(
    slots: Sequence[Slot],
    seconds: Sequence[float],
    wake: Sequence[float],
    sleep: Sequence[float],
    refresh: Sequence[float],
    drops: Sequence[bool],
) -> Timeline:
    """Return when each task runs: greedily, in program order within a pool.

    A pool does one thing at a time. A task starts when its pool is free and the results it needs
    are there; then seats switch and weights are brought, for which the pool that trains them must
    be free too; then it runs. Every end grows with every number given, so numbers that are too
    small give a step that is too short: the search's bounds rest on that.

    Args:
        slots: of `slots`.
        seconds: of each task, all its turns.
        wake: of each seat, to bring back what it let go when another took the pool.
        sleep: of each seat, to let it go.
        refresh: of each seat, to bring its weights from where they are trained.
        drops: whether the seat lets go of its weights, so brings them at every entry.
    """
    count = 1 + max((slot.pool for slot in slots), default=0)
    free = [0.0] * count
    starts: list[float] = []
    computes: list[float] = []
    ends: list[float] = []
    for i, slot in enumerate(slots):
        pool, seat = slot.pool, slot.seat
        at = free[pool]
        for needed in slot.after:
            at = max(at, ends[needed])
        starts.append(at)
        for old, new, turns in slot.switches:
            at += len(turns) * (sleep[old] + wake[new])
        brought = len(slot.brought(drops=drops[seat]))
        if brought and slot.source is not None:
            at = max(at, free[slot.source]) + brought * refresh[seat]
            free[slot.source] = at
        computes.append(at)
        at += seconds[i]
        ends.append(at)
        free[pool] = at
    return Timeline(tuple(starts), tuple(computes), tuple(ends))


def _old(tasks: Sequence[Task], seat_of: Sequence[int], i: int, *, stale: bool) -> range:
    """Return before which turns the weights of a task are older than the last update.

    `stale` says it of the first. Of later turns it is so if an update comes between the seat's
    last use and this one.
    """
    loop, role = loop_of(tasks[i].name), tasks[i].seat.role
    inside = [j for j in range(len(tasks)) if loop and loop_of(tasks[j].name) == loop]
    place = inside.index(i) if inside else 0
    last = next(
        (
            j
            for j in (*reversed(inside[:place]), *reversed(inside[place:]))
            if _updates(tasks[j], role) or seat_of[j] == seat_of[i]
        ),
        i,
    )
    turns = max(1, round(tasks[i].times)) if _updates(tasks[last], role) else 1
    return range(0 if stale else 1, turns)


def _joined(*several: range) -> range:
    """Return the turns of several; those of one loop are its first, the others, or all."""
    some = [turns for turns in several if turns]
    if not some:
        return range(0)
    return range(min(turns.start for turns in some), max(turns.stop for turns in some))


def _updates(task: Task, role: str) -> bool:
    return task.seat == Seat(role, "train") and task.kind != "snapshot"


def _switches(
    tasks: Sequence[Task], seat_of: Sequence[int], pools: Sequence[int], i: int
) -> tuple[tuple[int, int, range], ...]:
    """Return the `(from, to, turns)` of a task; see `Slot`."""
    here = [j for j in range(len(tasks)) if pools[seat_of[j]] == pools[seat_of[i]]]
    place = here.index(i)
    before = here[place - 1]
    loop = loop_of(tasks[i].name)
    turns = max(1, round(tasks[i].times)) if loop else 1
    if not loop:
        found = [(before, range(1))]
    elif place and loop_of(tasks[before].name) == loop:
        found = [(before, range(turns))]
    else:  # the first of the loop: once from before it, then from the loop's own last
        last = max(j for j in here if loop_of(tasks[j].name) == loop)
        found = [(before, range(1)), (last, range(1, turns))]
    return tuple(
        (seat_of[j], seat_of[i], when) for j, when in found if when and seat_of[j] != seat_of[i]
    )
