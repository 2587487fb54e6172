"""Every placement, one by one, without a bound: what the search must agree with.

Only the definitions are shared with the search: which sizes pools may have, how they are packed,
and when the tasks of a step run.
"""

from itertools import product

from flowrl.compiler.cost.step import homes, slots, spans
from flowrl.compiler.search.costs import Use
from flowrl.compiler.search.space import blocks_of, pack, partitions
from flowrl.compiler.tasks import seats_of


def brute_force(tasks, costs, constraints):
    """Return the least `(seconds, gpus, bytes moved)` of all placements, or None if none fits."""
    seats = constraints.seats(seats_of(tasks))
    blocks = blocks_of(costs.machines)
    keys = []
    for groups in partitions(len(seats)):
        if not constraints.allow(seats, groups):
            continue
        members = [
            [s for s, g in zip(seats, groups, strict=True) if g == n]
            for n in range(max(groups) + 1)
        ]
        for shapes in product(*(constraints.shapes(pool, blocks) for pool in members)):
            ranks = pack(shapes, blocks)
            gpus = sum(shape.gpus for shape in shapes)
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
                    key = cost(tasks, costs, seats, groups, fixed, uses, kinds)
                    keys += [] if key is None else [(key[0], gpus, key[1])]
    return min(keys, default=None)


def layouts(costs, constraints, seat, ranks):
    if seat in constraints.layouts:
        fixed = constraints.layouts[seat]
        choices = [fixed] if fixed.size == len(ranks) else []
    else:
        choices = costs.layouts(seat, ranks)
    return [
        Use(seat, layout, ranks, share) for layout in choices for share in costs.cache_shares(seat)
    ]


def residencies(costs, constraints, seat):
    return (
        [constraints.residencies[seat]]
        if seat in constraints.residencies
        else costs.residencies(seat)
    )


def cost(tasks, costs, seats, groups, fixed, uses, kinds):
    """Return the seconds and bytes moved of one placement, or None if it is none or doesn't fit."""
    trainer = {s.role: i for i, s in enumerate(seats) if s.use == "train"}
    source = [trainer.get(s.role) if s.use != "train" else None for s in seats]
    for i, kind in enumerate(kinds):
        t = source[i]
        if t is None and kind in ("drop", "alias"):
            return None
        if kind == "alias" and not (
            groups[t] == groups[i] and kinds[t] == "resident" and costs.aliases(uses[t], uses[i])
        ):
            return None
    took = [costs.memory(use, kind) for use, kind in zip(uses, kinds, strict=True)]
    for group in set(groups):
        here = [i for i, g in enumerate(groups) if g == group]
        gpu, host = costs.capacity(uses[here[0]].ranks)
        if sum(took[i].host for i in here) > host:
            return None
        if any(took[i].awake + sum(took[j].asleep for j in here if j != i) > gpu for i in here):
            return None
    brings = [
        (0, 0.0)
        if source[i] is None or kinds[i] == "alias"
        else costs.reshard(uses[source[i]], uses[i])
        for i in range(len(seats))
    ]
    wakes = [costs.wake(use, kind) for use, kind in zip(uses, kinds, strict=True)]
    home = homes(tasks, seats)
    step = spans(
        fixed,
        [costs.seconds(task, uses[home[i]]) for i, task in enumerate(tasks)],
        [wake for wake, _ in wakes],
        [sleep for _, sleep in wakes],
        [seconds for _, seconds in brings],
        [kind == "drop" for kind in kinds],
    )
    moved = sum(brings[s.seat][0] * len(s.brought(drops=kinds[s.seat] == "drop")) for s in fixed)
    return step.seconds, moved
