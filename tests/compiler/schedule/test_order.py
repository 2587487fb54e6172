"""One order of collectives on all ranks, or the ranks that would wait for each other."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.schedule import (
    Event,
    Order,
    Schedule,
    check_order,
    deadlock,
    schedule,
    schedule_of,
)
from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import ProgramError
from programs.grpo import grpo
from programs.ppo import ppo

SPLIT = Cluster(
    (
        Pool("train", 4, ("policy", "reference", "critic"), {"policy": "fsdp2 x dp2"}),
        Pool("rollout", 4, ("policy.generate",), {"policy.generate": "tp2 x dp2"}, first=4),
        Pool("data", 0, ("data", "reward")),
    )
)


def of(program, cluster):
    return schedule(compile_graph(program.trace({}).graph, cluster), cluster)


def with_order(its, rank, events):
    """Return a schedule in which one rank has another order."""
    others = [
        attrs.evolve(order, ranks=tuple(r for r in order.ranks if r != rank))
        for order in its.orders
    ]
    return attrs.evolve(its, orders=(*others, Order((rank,), tuple(events))))


def order_of(its, rank):
    return next(order.events for order in its.orders if rank in order.ranks)


def swapped(its, rank, first, then):
    """Return a schedule in which a rank does its first event of one kind after one of another."""
    events = list(order_of(its, rank))
    i, j = (
        next(p for p, n in enumerate(events) if its.events[n].does == does)
        for does in (first, then)
    )
    events[i], events[j] = events[j], events[i]
    return with_order(its, rank, events)


def test_ranks_of_a_pool_do_the_same_but_for_the_first_which_has_the_data():
    found = of(grpo, SPLIT)

    assert [(order.ranks, len(order.events)) for order in found.orders] == snapshot(
        [((0,), 16), ((1, 2, 3), 9), ((4,), 17), ((5, 6, 7), 5)]
    )


@pytest.mark.parametrize("name", builtin_programs())
def test_the_ranks_of_every_program_meet_in_one_order(name):
    found = of(load_program(name), SPLIT)

    check_order(found)

    assert found.size


def test_two_ranks_whose_orders_are_swapped_are_named_with_their_ops_and_lines():
    found = swapped(of(grpo, SPLIT), 2, "all-gather", "reduce-scatter")

    with pytest.raises(ProgramError) as refused:
        check_order(found)

    assert str(refused.value) == snapshot("""\
2 GPUs would wait for each other: they take part in collectives in different orders
  rank 2: reduce-scatter (fsdp) in `%20 update policy` (grpo.py:23)
    then all-gather (fsdp) in `%20 update policy` (grpo.py:23)
  rank 3: all-gather (fsdp) in `%20 update policy` (grpo.py:23)
    then reduce-scatter (fsdp) in `%20 update policy` (grpo.py:23)
help: all ranks must do what the controller tells them in the order of the program\
""")


def test_a_rank_that_meets_others_first_whom_nobody_waits_for_is_no_fault():
    pairs = [
        Event("%0 update policy", "x.py:1", "all-reduce", "tp", (range(0, 2), range(2, 4))),
        Event("%1 update policy", "x.py:2", "all-reduce", "dp", (range(0, 4, 2), range(1, 4, 2))),
    ]
    found = schedule_of(pairs)

    assert not deadlock(found)
    assert deadlock(with_order(with_order(found, 3, (1, 0)), 0, (1, 0)))
    assert not deadlock(with_order(found, 3, (1, 0)))


def test_three_ranks_that_wait_in_a_cycle():
    pairs = [
        Event(f"%{n}", f"x.py:{n}", "send", "data", (ranks,))
        for n, ranks in enumerate([(0, 1), (1, 2), (0, 2)])
    ]
    orders = (Order((0,), (2, 0)), Order((1,), (0, 1)), Order((2,), (1, 2)))

    cycle = deadlock(Schedule(tuple(pairs), orders))

    assert [(m.rank, m.first.op, m.then.op) for m in cycle] == snapshot(
        [(0, "%2", "%0"), (1, "%0", "%1"), (2, "%1", "%2")]
    )


def test_what_a_rank_does_between_is_left_out_of_the_cycle():
    events = tuple(
        Event(f"%{n}", f"x.py:{n}", "send", "data", (ranks,))
        for n, ranks in enumerate([(0, 1), (0, 2), (0, 1)])
    )
    orders = (Order((0,), (0, 1, 2)), Order((1,), (2, 0)), Order((2,), (1,)))

    cycle = deadlock(Schedule(events, orders))

    assert [(m.rank, m.first.op, m.then.op) for m in cycle] == [(0, "%0", "%2"), (1, "%2", "%0")]


def runs(its):
    """Return whether all ranks end: each waits at its next collective for those who meet in it."""
    left = {rank: list(order.events) for order in its.orders for rank in order.ranks}
    going = True
    while going:
        going = False
        for number, event in enumerate(its.events):
            for group in event.groups:
                if all(left[rank][:1] == [number] for rank in group):
                    for rank in group:
                        left[rank].pop(0)
                    going = True
    return not any(left.values())


@given(st.data())
def test_a_cycle_is_found_just_when_ranks_would_hang(data):
    ranks = st.lists(st.integers(0, 3), min_size=2, max_size=3, unique=True)
    met = data.draw(st.lists(ranks.map(lambda its: tuple(sorted(its))), min_size=1, max_size=5))
    found = schedule_of(Event(f"%{n}", "", "send", "data", (its,)) for n, its in enumerate(met))
    orders = [
        Order((rank,), tuple(data.draw(st.permutations(order.events))))
        for order in found.orders
        for rank in order.ranks
    ]
    mixed = attrs.evolve(found, orders=tuple(orders))

    assert bool(deadlock(mixed)) == (not runs(mixed))


def test_a_thousand_ranks_are_a_handful_of_orders():
    cluster = Cluster((Pool("all", 1024, ("policy", "critic"), {"policy": "tp8 x fsdp8 x dp16"}),))

    found = of(ppo, cluster)
    check_order(found)

    assert found.size == 1024
    assert len(found.orders) <= 4
