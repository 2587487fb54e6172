"""When the tasks of a step run."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.cost.step import slots, timeline
from flowrl.compiler.target import Lengths
from flowrl.compiler.tasks import Seat, Task

TRAIN, GENERATE = Seat("policy", "train"), Seat("policy", "generate")
REFERENCE, CRITIC = Seat("reference", "score"), Seat("critic", "train")
SEATS = [GENERATE, REFERENCE, TRAIN, CRITIC]


def task(name, kind, seat, *after, times=1):
    length = Lengths.of(1)
    return Task(name, kind, seat, 1, length, length, times=times, after=after)


PPO = [
    task("%0", "generate", GENERATE),
    task("%1", "logprobs", REFERENCE, 0),
    task("%2", "values", Seat("critic", "score"), 0),
    task("%9/%0", "update", TRAIN, 1, 2, times=4),
    task("%9/%1", "update", CRITIC, 1, 2, times=4),
]


def step(pools, *, wake=(0, 0, 0, 0), refresh=0, drops=False, seconds=(10, 2, 3, 20, 25)):
    """Return when PPO's tasks run, given the pool of each of SEATS."""
    return timeline(
        slots(PPO, SEATS, pools),
        seconds,
        wake,
        [0.0] * 4,
        [refresh, 0, 0, 0],
        [drops, False, False, False],
    )


def test_tasks_of_one_pool_run_one_after_another():
    assert step([0, 0, 0, 0]).ends == (10, 12, 15, 35, 60)


def test_tasks_of_other_pools_overlap_where_their_needs_allow():
    apart = step([0, 1, 0, 2])

    assert apart.starts == (0, 10, 10, 13, 13)
    assert apart.ends == (10, 12, 13, 33, 38)
    assert apart.seconds == 38


def test_a_score_seat_without_a_place_is_where_its_model_trains():
    assert [slot.seat for slot in slots(PPO, SEATS, [0, 1, 2, 3])] == [0, 1, 3, 2, 3]


def test_seats_of_one_pool_wake_when_they_take_it_and_each_turn_of_a_loop():
    found = slots(PPO, SEATS, [0, 0, 0, 0])

    assert [slot.switches for slot in found] == snapshot(
        [
            ((3, 0, range(1)),),
            ((0, 1, range(1)),),
            ((1, 3, range(1)),),
            ((3, 2, range(1)), (3, 2, range(1, 4))),
            ((2, 3, range(4)),),
        ]
    )
    awake = step([0, 0, 0, 0], wake=(1, 0, 0, 0.5))
    assert awake.seconds == 60 + 1 + 5 * 0.5
    assert awake.computes[0] == 1


def test_a_seat_alone_in_its_pool_never_wakes():
    assert step([0, 1, 2, 3], wake=(9, 9, 9, 9)) == step([0, 1, 2, 3])


def test_new_weights_are_brought_before_generation_and_hold_up_the_pool_that_trains_them():
    found = step([0, 2, 1, 1], refresh=4)

    assert found.computes[0] == 4
    assert found.ends[0] == 14


def test_dropped_weights_are_brought_once_for_an_update_and_an_entry():
    kept, dropped = step([0, 0, 0, 0], refresh=4), step([0, 0, 0, 0], refresh=4, drops=True)

    assert kept == dropped
    assert kept.seconds == 64


def test_weights_updated_in_a_loop_are_brought_each_turn():
    online = [task("%9/%0", "generate", GENERATE, times=3), task("%9/%1", "update", TRAIN, times=3)]

    found = slots(online, [GENERATE, TRAIN], [0, 1])

    assert [len(slot.refreshes) for slot in found] == [3, 0]


numbers = st.lists(st.integers(0, 50), min_size=5, max_size=5)
pools = st.lists(st.integers(0, 3), min_size=4, max_size=4)


@given(pools, numbers, numbers, numbers, st.booleans())
def test_no_end_comes_sooner_when_a_number_grows(pools, seconds, more, wake, drops):
    less = step(pools, seconds=seconds, wake=wake[:4], refresh=wake[4], drops=drops)
    longer = step(
        pools,
        seconds=[a + b for a, b in zip(seconds, more, strict=True)],
        wake=[a + b for a, b in zip(wake, more, strict=True)][:4],
        refresh=wake[4] + more[4],
        drops=drops,
    )

    assert all(a <= b for a, b in zip(less.ends, longer.ends, strict=True))
