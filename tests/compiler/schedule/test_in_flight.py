"""How many values can be on their way between pools."""

import attrs
import pytest
from inline_snapshot import snapshot

from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.forecast import EdgeForecast, Forecast, TaskForecast
from flowrl.compiler.schedule import Limits, backlogs
from flowrl.compiler.target import Lengths
from flowrl.compiler.tasks import Seat, Task
from flowrl.errors import ProgramError

TOKEN = Lengths.of(1)
EDGE = EdgeForecast(
    name="%9/%0",
    what="f32[prompt, sample]",
    source="train",
    target="critic",
    layouts=("", ""),
    times=1000,
    bytes=4000.0,
    ratio=None,
    seconds=0.0,
    loc="x.py:3",
)


def predicted(*edges, tasks=()):
    made = [
        TaskForecast(
            Task(name, "update", Seat("policy", "train"), 1, TOKEN, TOKEN, times=1000),
            "train",
            "1",
            Spent(),
            0.0,
            0.0,
        )
        for name in tasks
    ]
    return Forecast(tuple(made), edges, (), 1.0)


def most(*edges, tasks=(), **limits):
    return [
        (of.edge.name, of.values)
        for of in backlogs(predicted(*edges, tasks=tasks), Limits(**limits))
    ]


def test_a_producer_in_a_loop_is_ahead_by_as_many_turns_as_calls_may_be_pending():
    assert most(EDGE) == [("%9/%0", 129)]
    assert most(EDGE, tasks=["%9/%1"]) == [("%9/%0", 86)]
    assert most(EDGE, pending=3) == [("%9/%0", 2)]


def test_no_more_is_in_flight_than_a_step_sends():
    once = attrs.evolve(EDGE, times=3)

    assert most(once) == [("%9/%0", 3)]
    assert most(once, steps=2) == [("%9/%0", 6)]


def test_ops_outside_of_the_loop_dont_slow_it():
    assert most(EDGE, tasks=["%1", "%9/%2/%0"]) == [("%9/%0", 129)]


def test_what_changes_its_layout_only_is_no_message_and_waits_for_nobody():
    inside = attrs.evolve(EDGE, name="%9/%2", target="train", layouts=("fsdp2", "tp2"))

    assert most(EDGE, inside) == [("%9/%0", 129)]


def test_the_most_bytes_come_first():
    large = attrs.evolve(EDGE, name="%8", bytes=9e9, times=1)

    first, second = backlogs(predicted(EDGE, large))

    assert (first.edge.name, first.bytes) == ("%8", 9e9)
    assert str(second) == snapshot("129 values of f32[prompt, sample] on edge %9/%0")
    assert second.bytes == 129 * 4


def test_an_edge_that_nothing_bounds_is_named():
    with pytest.raises(ProgramError) as refused:
        backlogs(predicted(EDGE), Limits(pending=None, steps=None))

    assert str(refused.value) == snapshot("""\
nothing bounds what is on its way from pool `train` to pool `critic`: the one may run ahead of the other by any number of steps
  %9/%0: f32[prompt, sample] (x.py:3)
help: let the controller wait for the oldest calls, or for the steps before\
""")
