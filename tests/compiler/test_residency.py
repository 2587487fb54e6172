"""Who sleeps and wakes before which op, and that all fits when the op runs."""

import re
from itertools import groupby

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.cost.step import slots, timeline
from flowrl.compiler.forecast import forecast
from flowrl.compiler.residency import Stay, actions, residency
from flowrl.compiler.search import Bytes, Constraints, search
from flowrl.compiler.tasks import Seat, Task
from flowrl.errors import ProgramError
from flowrl.ir.action import Does
from flowrl.report.options import settings as given_by
from tests.report.conftest import example, planned

LEAVES = {Does.SLEEP, Does.OFFLOAD, Does.DROP}
USES = {"train": "update", "generate": "generate", "score": "logprobs"}


@st.composite
def steps(draw):
    """Draw the tasks of a step, some in a loop, and where and how their seats live."""
    seats = st.builds(Seat, st.sampled_from(["policy", "critic"]), st.sampled_from(list(USES)))
    before, inside, after = (draw(st.lists(seats, max_size=3)) for _ in range(3))
    turns = draw(st.integers(1, 3))
    parts = [(f"%{i}", seat, 1) for i, seat in enumerate(before)]
    parts += [(f"%5/%{i}", seat, turns) for i, seat in enumerate(inside)]
    parts += [(f"%{6 + i}", seat, 1) for i, seat in enumerate(after)]
    tasks = [
        Task(name, USES[seat.use], seat, 1, None, None, times=times) for name, seat, times in parts
    ]
    placed = list(dict.fromkeys(task.seat for task in tasks))
    return tasks, [_stay(draw, seat, placed) for seat in placed]


def _stay(draw, seat, placed):
    trained = seat.use != "train" and Seat(seat.role, "train") in placed
    kinds = ["resident", "offload", *(["drop"] if trained else [])]
    asleep, more = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    size = Bytes(asleep + more, asleep)
    wake, sleep, bring = (draw(st.integers(0, 9)) for _ in range(3))
    pool, kind = draw(st.sampled_from("ab")), draw(st.sampled_from(kinds))
    return Stay(seat, pool, kind, size, wake, sleep, bring=bring if trained else 0)


def unrolled(tasks):
    """Yield tasks as they run, turn by turn, with the number of the turn."""
    for loop, its in groupby(tasks, key=lambda task: task.name.rpartition("/")[0]):
        group = list(its)
        for turn in range(group[0].times if loop else 1):
            yield from ((task, turn) for task in group)


class Replay:
    """Does what actions say, and knows who is awake, who has new weights, and what is in use."""

    def __init__(self, tasks, stays):
        self.stays = {str(stay.seat): stay for stay in stays}
        self.awake = {}
        for task in tasks:
            self.awake[self.stays[str(task.seat)].pool] = str(task.seat)
        self.used = {pool: self.expected(seat) for pool, seat in self.awake.items()}
        self.new = set()

    def expected(self, seat):
        its = self.stays[seat]
        others = (s for s in self.stays.values() if s.pool == its.pool and s is not its)
        return its.bytes.awake + sum(other.bytes.asleep for other in others)

    def act(self, action):
        if action.does in LEAVES:
            assert self.awake.pop(action.pool) == action.seat
            self.new -= {action.seat} if action.does is Does.DROP else set()
        elif action.does is Does.BRING:
            self.new.add(action.seat)
        else:
            assert self.awake.setdefault(action.pool, action.seat) == action.seat
        self.used[action.pool] += action.bytes

    def run(self, task):
        seat = str(task.seat)
        assert self.awake[self.stays[seat].pool] == seat
        assert self.used[self.stays[seat].pool] == self.expected(seat)
        if str(Seat(task.seat.role, "train")) in self.stays and task.seat.use != "train":
            assert seat in self.new
        if task.seat.use == "train":
            self.new -= {s for s, its in self.stays.items() if its.seat.role == task.seat.role}


@given(steps())
def test_a_seat_is_awake_with_new_weights_and_the_pool_holds_what_is_said_whenever_an_op_runs(step):
    tasks, stays = step
    found, replay = actions(tasks, stays), Replay(tasks, stays)

    for task, turn in [*unrolled(tasks), *unrolled(tasks)]:
        for action in found:
            if action.before == task.name and turn in range(*action.turns):
                replay.act(action)
        replay.run(task)


@given(steps())
def test_what_leaves_comes_back_in_every_step(step):
    tasks, stays = step
    change = dict.fromkeys((stay.pool for stay in stays), 0)

    for action in actions(tasks, stays):
        change[action.pool] += action.times * action.bytes

    assert set(change.values()) <= {0}


@given(steps())
def test_actions_take_the_seconds_that_the_step_counts_before_each_op(step):
    tasks, stays = step
    together = [attrs.evolve(stay, pool="a") for stay in stays]
    counted = timeline(
        slots(tasks, [stay.seat for stay in stays], [0] * len(stays)),
        [1] * len(tasks),
        [stay.wake for stay in stays],
        [stay.sleep for stay in stays],
        [stay.bring for stay in stays],
        [stay.residency == "drop" for stay in stays],
    )

    took = dict.fromkeys((task.name for task in tasks), 0)
    for action in actions(tasks, together):
        took[action.before] += action.times * action.seconds
    between = zip(counted.starts, counted.computes, strict=True)
    assert list(took.values()) == [end - start for start, end in between]


@given(steps())
def test_a_seat_alone_in_its_pool_only_gets_weights(step):
    tasks, stays = step
    apart = [attrs.evolve(stay, pool=str(stay.seat)) for stay in stays]

    assert {action.does for action in actions(tasks, apart)} <= {Does.BRING}


def ppo(*sets):
    return planned(example("ppo"), (*given_by("8xH100", None), *sets))


def with_residencies(plan, **kinds):
    """Return a plan in which seats of a use have another residency, whatever fits."""
    seats = {
        seat: attrs.evolve(its, residency=kinds.get(seat.use, its.residency))
        for seat, its in plan.found.seats.items()
    }
    return attrs.evolve(plan, found=attrs.evolve(plan.found, seats=seats))


def shown(plan):
    return [
        f"{a.before} x{a.times}: {a.seat} {a.does}{' moves' if a.moved else ''} {a.by}".rstrip()
        for a in residency(plan)
    ]


def unmeasured(error):
    """Return an error without its bytes and seconds, which tests of the cost models hold."""
    return re.sub(r"[\d.]+ (GB|s)\b", r"# \1", str(error))


def test_ppo_with_generation_dropped_and_training_offloaded():
    plan = with_residencies(ppo(), generate="drop", train="offload")

    assert shown(plan) == snapshot(
        [
            "%3 x1: critic.train offload moves",
            "%3 x1: policy.generate wake",
            "%3 x1: policy.generate bring moves %0",
            "%4 x1: policy.generate drop",
            "%4 x1: reward.score wake",
            "%15 x1: reward.score sleep",
            "%15 x1: critic.train load moves",
            "%16 x1: critic.train offload moves",
            "%16 x1: reference.score wake",
            "%24/%1 x1: reference.score sleep",
            "%24/%1 x1: policy.train load moves",
            "%24/%1 x7: critic.train offload moves",
            "%24/%1 x7: policy.train load moves",
            "%24/%2 x8: policy.train offload moves",
            "%24/%2 x8: critic.train load moves",
        ]
    )


def test_at_every_op_the_pool_holds_what_the_forecast_says():
    plan = ppo()
    memory = {str(of.seat): of for of in forecast(plan).memory}
    used = memory["critic.train"].total

    for task in plan.tasks:
        its = [action for action in residency(plan) if action.before == task.name]
        used += sum(action.bytes for action in its if action.turns[0] == 0)
        seat = str(task.seat) if str(task.seat) in memory else f"{task.seat.role}.train"
        assert used == memory[seat].total <= memory[seat].capacity


def test_residencies_that_the_user_fixes_are_refused_alike():
    plan = ppo()
    stay = Constraints(residencies=dict.fromkeys(plan.found.seats, "resident"), most_gpus=2)

    with pytest.raises(ProgramError) as refused:
        search(plan.tasks, plan.target, stay)

    assert unmeasured(refused.value) == snapshot("""\
the step doesn't fit on 8xH100: of all placements, the closest fit needs # GB more than the # GB of a GPU
  on 2 GPUs, while critic.train (fsdp2, resident) works: weights # GB, gradients # GB, optimizer # GB, activations # GB, engine # GB, buffers # GB
  and meanwhile policy.generate (tp2, resident) # GB, reward.score (fsdp2, resident) # GB, reference.score (fsdp2, resident) # GB, policy.train (tp2, resident) # GB
help: leave pools, layouts and residency to the search: a step of # s\
""")
