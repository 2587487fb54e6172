"""What happens between the ops of a plan, in words."""

import attrs
from inline_snapshot import snapshot

from flowrl.compiler.forecast import forecast
from flowrl.ir.action import Action, Does
from flowrl.report.actions import order_lines, residency_lines, sentence, unused_lines
from flowrl.report.options import settings
from tests.report.conftest import example, planned

FILE = example("grpo")


def grpo(machines="8xH100", *pools):
    return planned(FILE, (*settings(machines, None), *(f"cluster.pools.{pool}" for pool in pools)))


def test_each_thing_that_a_seat_does_has_its_words():
    made = [
        Action("%3", (0, 1), "main", "policy.train", does, size, moved, 0.1, "%0")
        for does, size, moved in [
            (Does.SLEEP, -3_000_000, 0),
            (Does.OFFLOAD, -3_000_000, 2_000_000),
            (Does.OFFLOAD, -3_000_000, 0),
            (Does.DROP, -3_000_000, 0),
            (Does.WAKE, 3_000_000, 0),
            (Does.LOAD, 3_000_000, 2_000_000),
            (Does.BRING, 0, 5_000_000),
        ]
    ]
    made.append(attrs.evolve(made[-1], by=""))

    assert list(map(sentence, made)) == snapshot(
        [
            "policy.train sleeps (-3 MB)",
            "policy.train offloads 2 MB to the host (-3 MB)",
            "policy.train leaves, the host has a copy (-3 MB)",
            "policy.train is dropped (-3 MB)",
            "policy.train wakes (+3 MB)",
            "policy.train loads 2 MB from the host (+3 MB)",
            "policy.train gets its weights by %0 (5 MB over links)",
            "policy.train gets its weights (5 MB over links)",
        ]
    )


def test_seats_that_are_alone_in_their_pools_make_no_room():
    alone = grpo(
        "8xH100",
        "a={roles=['policy.generate', 'data', 'reward']}",
        "b={roles=['policy.train']}",
        "c={roles=['reference']}",
    )

    (head, *rows) = residency_lines(alone)

    assert head.split() == ["before", "times", "what", "happens", "seconds"]
    assert [row.partition("  ")[0] for row in rows] == ["%1 generate policy"]
    assert "gets its weights by %0" in rows[0]


def test_collectives_and_what_is_in_flight_are_a_line_each():
    split = grpo(
        "8xH100",
        "a={gpus=4, workers=4, roles=['policy.generate', 'data', 'reward']}",
        "b={gpus=4, workers=4, roles=['policy.train', 'reference']}",
    )

    collectives, in_flight = order_lines(split, forecast(split))

    assert collectives.endswith("in one order on 8 ranks")
    assert in_flight.endswith("1 value of model<policy> on edge %0")


def test_unused_gpus_are_named_in_runs():
    plan = grpo("2x4xH100")
    pools = [attrs.evolve(pool, first=2, gpus=min(pool.gpus, 3)) for pool in plan.cluster.pools]

    two = attrs.evolve(plan, cluster=attrs.evolve(plan.cluster, pools=tuple(pools)))

    assert list(unused_lines(two)) == ["unused: 5 H100, ranks 0-1, 5-7"]
    assert list(unused_lines(plan)) == []
