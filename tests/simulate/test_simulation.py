"""Simulated steps against the plan that they are of."""

from statistics import mean, median

import pytest

import flowrl as fl
from flowrl import ops
from flowrl.compiler.search import Constraints
from flowrl.compiler.target import Lengths
from flowrl.compiler.tasks import Seat
from flowrl.config.programs import builtin_programs
from flowrl.errors import EngineError
from flowrl.runtime.pools.failures import WorkerDied
from flowrl.simulate import Failures
from tests.simulate.conftest import FIXED

GENERATE, TRAIN = Seat("policy", "generate"), Seat("policy", "train")
LONG_TAILED = Lengths.of({"mean": 600, "max": 4096})
EDGES = 1e-3
"""Share of a step that data take between the pools of models and of data; plans leave it out."""


@pytest.mark.parametrize("program", sorted(builtin_programs()))
def test_with_fixed_lengths_and_free_calls_a_step_takes_what_the_plan_predicts(program, case):
    placed = case(program)

    first, second = placed.simulate().steps

    assert first == pytest.approx(placed.plan.found.seconds, rel=EDGES)
    assert second == pytest.approx(first, rel=EDGES)


def test_pools_that_wait_for_one_another_take_what_the_plan_predicts(case):
    apart = Constraints(apart=(frozenset({GENERATE, TRAIN}),), gpus={})
    placed = case("grpo", machines="2x8xH100", constraints=apart)

    (step,) = placed.simulate(1).steps

    assert len(placed.plan.found.pools) > 1
    assert step == pytest.approx(placed.plan.found.seconds, rel=0.01)


def test_each_call_of_the_controller_costs_what_the_profile_says(case):
    placed = [case("grpo", call=seconds) for seconds in (1e-9, 100, 200)]

    free, slow, slower = (each.simulate(1).steps[0] for each in placed)

    calls = (slower - slow) / 100
    assert calls == round(calls) > 8 * 3, "each of 8 workers begins a step, samples and ends it"
    assert slow - free < 100 * calls, "workers do something meanwhile"


def test_a_long_tail_makes_steps_longer_than_the_mean_length_does(case):
    fixed, tailed = (
        case("grpo", response_tokens=lengths).simulate(8) for lengths in (FIXED, LONG_TAILED)
    )

    assert median(tailed.steps) > 1.1 * median(fixed.steps)
    assert len(set(tailed.steps)) == 8, "each step draws its own lengths"
    assert tailed.busy["main"] < fixed.busy["main"], "engines wait for the longest sequence"


def test_the_mean_step_of_a_long_tail_is_near_the_plan(case):
    placed = case("grpo", response_tokens=LONG_TAILED)

    assert mean(placed.simulate(20).steps) == pytest.approx(placed.plan.found.seconds, rel=0.05)


def test_a_seed_gives_one_run(case):
    placed = case("grpo", response_tokens=LONG_TAILED)
    failing = Failures(mean_seconds=200, restart=10)

    one, same, other = (placed.simulate(5, seed=seed, failures=failing) for seed in (1, 1, 2))

    assert (one.steps, one.lost, one.deaths) == (same.steps, same.lost, same.deaths)
    assert one.steps != other.steps


def test_rounds_of_dynamic_sampling_come_as_often_as_expected(case):
    placed = case("dapo", rounds=1.5)

    steps = placed.simulate(40).steps

    assert len({round(seconds, 3) for seconds in steps}) == 2, "one round, or two"
    assert mean(steps) == pytest.approx(placed.plan.found.seconds, rel=0.1)


def test_of_two_graphs_now_one_runs_and_now_the_other(case):
    @fl.program
    def perhaps(policy: fl.Model, prompts: fl.Prompts):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=4))

        def train(policy):
            loss = lambda new: ops.token_mean(-new.logprobs, rollouts.mask)
            return ops.update(policy, loss, rollouts)[0]

        return ops.cond(rewards.mean() > 0.1, train, lambda policy: policy, policy), {}

    steps = case(perhaps).simulate(10).steps

    assert len({round(seconds, 3) for seconds in steps}) == 2


def test_a_dead_gpu_loses_the_step_which_is_run_again(case):
    placed = case("grpo")
    gpus, failing = 8, Failures(mean_seconds=400, restart=30)
    whole = placed.simulate(30)

    done = placed.simulate(30, failures=failing)

    assert len(done.steps) == len(whole.steps)
    assert done.deaths
    assert done.lost >= 30 * len(done.deaths)
    assert done.elapsed == pytest.approx(sum(done.steps) + done.lost)
    assert sum(done.steps) == pytest.approx(sum(whole.steps), rel=EDGES)
    assert len(done.deaths) == pytest.approx(gpus * done.elapsed / 400, rel=0.6)


def test_what_fails_for_another_reason_is_not_run_again(case):
    placed = case("dapo", hyperparameters={"rounds": 1}, rounds=3)

    with pytest.raises(EngineError, match="groups wanted") as refused:
        placed.simulate(1, failures=Failures(mean_seconds=1e9))

    assert not isinstance(refused.value.__cause__, WorkerDied)


def test_many_workers_are_all_told_to_sample_before_any_is_waited_for(case):
    apart = Constraints(apart=(frozenset({GENERATE, TRAIN}),))
    placed = case("grpo", machines="128x8xH100", constraints=apart, prompts=4096)

    done = placed.simulate(1)

    starts = {
        span.start for span in done.spans if "generate" in span.name and "bring" not in span.name
    }
    assert max(done.workers.values()) > 256
    assert max(starts) - min(starts) < 0.01
