"""Every placement, one by one, without a bound: what the search must agree with.

Only the definitions are shared with the search: which sizes pools may have, how they are packed,
and when the tasks of a step run.
"""

from itertools import product

from flowrl.compiler.cost.step import homes, slots, timeline
from flowrl.compiler.search.costs import Seated
from flowrl.compiler.search.space import blocks_of, pack, partitions
from flowrl.compiler.tasks import seats_of
from flowrl.ir.layout import AXES


def brute_force(tasks, costs, constraints):
    """Return the least `(seconds, gpus, bytes moved)` of all placements, or None if none fits."""
    return min(keys(tasks, costs, constraints), default=None)


def least_lack(tasks, costs, constraints):
    """Return the fewest bytes that any placement lacks, or None if constraints allow none."""
    return min(keys(tasks, costs, constraints, key=lack), default=None)


def keys(tasks, costs, constraints, key=None):
    """Yield the key of every placement that fits, or by `key` another number of every one."""
    seats = constraints.seats(seats_of(tasks))
    blocks = blocks_of(costs.machines)
    for groups in partitions(len(seats)):
        if not constraints.allow(seats, groups):
            continue
        members = [
            [s for s, g in zip(seats, groups, strict=True) if g == n]
            for n in range(max(groups) + 1)
        ]
        for extents in product(*(constraints.extents(pool, blocks) for pool in members)):
            ranks = pack(extents, blocks)
            gpus = sum(extent.gpus for extent in extents)
            if ranks is None or gpus > (constraints.most_gpus or gpus):
                continue
            fixed = slots(tasks, seats, groups)
            for uses in product(
                *(
                    layouts(costs, constraints, s, ranks[g])
                    for s, g in zip(seats, groups, strict=True)
                )
            ):
                for kinds in product(*(residencies(costs, constraints, s) for s in seats)):
                    if not possible(costs, seats, groups, uses, kinds):
                        continue
                    if key is not None:
                        yield key(costs, groups, uses, kinds)
                    elif lack(costs, groups, uses, kinds) <= 0:
                        seconds, moved = cost(tasks, costs, seats, fixed, uses, kinds)
                        yield seconds, gpus, moved


def layouts(costs, constraints, seat, ranks):
    if seat in constraints.layouts:
        fixed = constraints.layouts[seat]
        choices = [fixed] if fixed.size == len(ranks) else []
    else:
        allowed = constraints.axes.get(str(seat), constraints.axes.get(seat.use, AXES))
        choices = [
            layout
            for layout in costs.layouts(seat, ranks)
            if all(layout.axes[axis] == 1 for axis in AXES if axis not in allowed)
        ]
    return [
        Seated(seat, layout, ranks, share)
        for layout in choices
        for share in costs.cache_shares(seat)
    ]


def residencies(costs, constraints, seat):
    return (
        [constraints.residencies[seat]]
        if seat in constraints.residencies
        else costs.residencies(seat)
    )


def sources(seats):
    """Return the seat that trains the weights of each, if another does."""
    trainer = {s.role: i for i, s in enumerate(seats) if s.use == "train"}
    return [trainer.get(s.role) if s.use != "train" else None for s in seats]


def possible(costs, seats, groups, uses, kinds):
    """Return whether weights that are dropped or aliased are there to be brought or read."""
    for i, (source, kind) in enumerate(zip(sources(seats), kinds, strict=True)):
        if source is None and kind in ("drop", "alias"):
            return False
        if kind == "alias" and not (
            groups[source] == groups[i]
            and kinds[source] == "resident"
            and costs.aliases(uses[source], uses[i])
        ):
            return False
    return True


def lack(costs, groups, uses, kinds):
    """Return the bytes that the worst pool lacks at its worst moment, on a GPU or a host."""
    took = [costs.memory(use, kind) for use, kind in zip(uses, kinds, strict=True)]
    lacks = []
    for group in set(groups):
        here = [i for i, g in enumerate(groups) if g == group]
        gpu, host = costs.capacity(uses[here[0]].ranks)
        lacks.append(sum(took[i].host for i in here) - host)
        for i in here:
            lacks.append(took[i].awake + sum(took[j].asleep for j in here if j != i) - gpu)
    return max(lacks)


def cost(tasks, costs, seats, fixed, uses, kinds):
    """Return the seconds of a step and the bytes moved in it."""
    brings = [
        (0, 0.0) if source is None or kind == "alias" else costs.reshard(uses[source], use)
        for source, use, kind in zip(sources(seats), uses, kinds, strict=True)
    ]
    wakes = [costs.wake(use, kind) for use, kind in zip(uses, kinds, strict=True)]
    home = homes(tasks, seats)
    step = timeline(
        fixed,
        [costs.seconds(task, uses[home[i]]) for i, task in enumerate(tasks)],
        [wake for wake, _ in wakes],
        [sleep for _, sleep in wakes],
        [seconds for _, seconds in brings],
        [kind == "drop" for kind in kinds],
    )
    often = [len(s.brought(drops=kinds[s.seat] == "drop")) for s in fixed]
    moved = sum(brings[s.seat][0] * n for s, n in zip(fixed, often, strict=True))
    return step.seconds, moved
