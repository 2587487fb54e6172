"""No ranks wait for each other: a proof, or the ranks that would."""

from collections.abc import Iterator
from itertools import pairwise

import attrs
import networkx as nx

from flowrl.compiler.schedule.events import Event
from flowrl.compiler.schedule.schedule import Schedule
from flowrl.errors import ProgramError


@attrs.frozen
class Meeting:
    """Two collectives in the order in which a rank takes part in them."""

    rank: int
    first: Event
    then: Event

    def __str__(self) -> str:
        return f"  rank {self.rank}: {self.first}\n    then {self.then}"


def check_order(schedule: Schedule) -> None:
    """Raise if ranks would wait for each other forever.

    Requires: what every rank does, in order. Ensures: all ranks meet in one order of collectives,
    so that any two take part in their common ones alike, and nothing waits in a cycle.

    Raises:
        ProgramError: with the ranks and ops of a cycle.
    """
    cycle = deadlock(schedule)
    if cycle:
        raise ProgramError(
            f"{len(cycle)} GPUs would wait for each other: they take part in collectives in "
            "different orders",
            where="\n".join(map(str, cycle)),
            hint="all ranks must do what the controller tells them in the order of the program",
        )


def deadlock(schedule: Schedule) -> tuple[Meeting, ...]:
    """Return a cycle of ranks that wait for each other, of two if there is one; () of none.

    A rank comes to a collective after the one before it in its order. Without a cycle in that
    relation there is one order of all, of which each rank's is a part.
    """
    waits = _waits(schedule)
    if nx.is_directed_acyclic_graph(waits):
        return ()
    pair = next(([(a, b), (b, a)] for a, b in waits.edges if waits.has_edge(b, a)), None)
    return tuple(_meetings(waits, pair or nx.find_cycle(waits), schedule))


Instance = tuple[int, int]
"""An event, and the first rank of one of its groups."""


def _waits(schedule: Schedule) -> "nx.DiGraph[Instance]":
    """Return which meetings some rank comes to only after which others."""
    group_of = [
        {rank: group[0] for group in event.groups if len(group) > 1 for rank in group}
        for event in schedule.events
    ]
    waits: nx.DiGraph[Instance] = nx.DiGraph()
    order_of = {rank: order.events for order in schedule.orders for rank in order.ranks}
    for rank in sorted(order_of):
        met = [(n, group_of[n][rank]) for n in order_of[rank] if rank in group_of[n]]
        for first, then in pairwise(met):
            if not waits.has_edge(first, then):
                waits.add_edge(first, then, rank=rank)
    return waits


def _meetings(
    waits: "nx.DiGraph[Instance]", cycle: list[tuple[Instance, Instance]], schedule: Schedule
) -> Iterator[Meeting]:
    """Yield a rank for each part of a cycle; what one rank does in a row is one part."""
    ranks = [waits.edges[edge]["rank"] for edge in cycle]
    start = next((i for i, rank in enumerate(ranks) if rank != ranks[i - 1]), 0)
    turned = [*zip(ranks, cycle, strict=True)]
    turned = turned[start:] + turned[:start]
    while turned:
        rank, (first, then) = turned.pop(0)
        while turned and turned[0][0] == rank:
            then = turned.pop(0)[1][1]
        yield Meeting(rank, schedule.events[first[0]], schedule.events[then[0]])
