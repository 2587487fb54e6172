"""The search finds what brute force finds."""

from random import Random

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.compiler.hardware import Machines
from flowrl.compiler.search import Constraints, best_placement
from flowrl.compiler.search.nearest import nearest
from flowrl.compiler.tasks import Seat, Task, seats_of
from flowrl.ir.layout import Layout
from tests.compiler.search.brute_force import brute_force, least_lack
from tests.compiler.search.tables import TableCosts

MACHINES = ("1xA10", "2xA10", "4xA10", "2x2xA10", "3x1xA10", "2xA10 + 1xH100", "1xA10 + 2x1xH100")


def random_tasks(random, roles):
    """Return up to six tasks of some roles, in and out of a loop, with random needs."""
    tasks = []
    for i in range(random.randint(1, 6)):
        role = random.choice(roles)
        kind, use = random.choice(
            [("generate", "generate"), ("logprobs", "score"), ("update", "train")]
        )
        loop = i > 2 and random.random() < 0.5
        tasks.append(
            Task(
                name=f"%9/%{i}" if loop else f"%{i}",
                kind=kind,
                seat=Seat(role, use),
                sequences=1,
                prompt_tokens=None,
                response_tokens=None,
                times=random.choice([1, 3]) if loop else 1,
                after=tuple(j for j in range(i) if random.random() < 0.4),
            )
        )
    return tuple(tasks)


def random_constraints(random, seats, machines):
    """Return none, or one or two decisions of each kind."""
    if random.random() < 0.5:
        return Constraints()
    some = lambda: random.sample(seats, min(len(seats), random.randint(0, 2)))
    pools = {seat: random.choice("ab") for seat in some()}
    return Constraints(
        pools=pools,
        gpus={name: random.randint(1, machines.size) for name in "ab" if random.random() < 0.3},
        kinds={"a": machines.gpu(random.randrange(machines.size)).name}
        if random.random() < 0.3
        else {},
        layouts={seat: Layout(tp=random.choice([1, 2])) for seat in some()[:1]},
        axes={random.choice(["train", str(seats[0])]): ("fsdp",)} if random.random() < 0.2 else {},
        residencies={seat: "offload" for seat in some()[:1]},
        together=(frozenset(some()),) if random.random() < 0.3 else (),
        apart=(frozenset(some()),) if random.random() < 0.3 else (),
        most_gpus=random.randint(1, machines.size) if random.random() < 0.3 else None,
    )


def random_problem(seed):
    """Return tasks, costs and constraints that brute force ends on in a moment."""
    random = Random(seed)
    machines = Machines.parse(random.choice(MACHINES))
    tasks = random_tasks(
        random, random.choice([["policy"], ["policy", "critic"], ["policy", "x", "y"]])
    )
    while len(seats_of(tasks)) > 3:
        tasks = tasks[:-1]
    kinds = random.choice(
        [("resident", "offload", "drop", "alias"), ("resident", "offload", "alias")]
    )
    costs = TableCosts(
        machines,
        seed,
        variety=random.choice([1, 2]),
        caches=random.choice([1, 2]),
        kinds=kinds,
        memory_bytes=random.choice([9, 12, 16, 30]),
        coarse=random.random() < 0.4,
    )
    return tasks, costs, random_constraints(random, list(seats_of(tasks)), machines)


@settings(max_examples=75, deadline=None)
@given(st.integers(0, 2**32))
def test_the_best_placement_is_that_of_brute_force(seed):
    tasks, costs, constraints = random_problem(seed)

    found = best_placement(tasks, costs, constraints)

    expected = brute_force(tasks, costs, constraints)
    assert (found and (found.seconds, found.gpus, found.moved)) == expected


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_the_nearest_placement_lacks_as_little_as_that_of_brute_force(seed):
    tasks, costs, constraints = random_problem(seed)
    costs = attrs.evolve(costs, memory_bytes=5)

    peak = nearest(tasks, costs, constraints)

    lacks = least_lack(tasks, costs, constraints)
    assert (peak is None) == (lacks is None)
    assert peak is None or max(0, peak.lacks) == max(0, lacks)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_search_finds_the_same_placement_each_time(seed):
    tasks, costs, constraints = random_problem(seed)

    assert best_placement(tasks, costs, constraints) == best_placement(tasks, costs, constraints)
