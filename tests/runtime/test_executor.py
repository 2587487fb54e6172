import math

import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.runtime.host import Scores
from programs.gdpo import gdpo
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps


@fl.program
def running_mean(policy: fl.Model, prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(1.0)):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
    advantages = rewards - baseline
    loss = lambda new: ops.token_mean(-advantages * new.logprobs, rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    next_baseline = 0.5 * baseline + 0.5 * rewards.mean()
    watched = ops.watch_rewards(rewards) | {"total": rewards.sum()}
    return policy, next_baseline, stats | watched | {"advantage": advantages.mean()}


@fl.program
def counted(
    policy: fl.Model,
    prompts: fl.Prompts,
    state: fl.Carry = fl.Carry({"seen": 0, "best": [0.0, -1.0]}),
):
    _, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    best = [ops.maximum(b, rewards.max()) for b in state["best"]]
    return {"seen": state["seen"] + 2, "best": best}, {}


@pytest.fixture(scope="module")
def ready(model_folder, tokenizer):
    """Return an executor of a program, lowered, and a cursor over prompts."""

    def ready(program, *, options=steps.SMOOTH, hyperparameters=None, **host):
        traced = fl.trace(program, **(hyperparameters or {}))
        roles = steps.roles(traced, model_folder, options=options)
        return steps.executor(traced, roles, tokenizer, **host), {"prompts": steps.Texts(tokenizer)}

    return ready


def by_step(*scores):
    """Score every completion of a step by that step's number."""
    return lambda names, rows, texts, samples, step, given: Scores(
        [[scores[step]] * len(texts)], {}
    )


def failing(ids):
    """Score by letters, but fail on the rows of these ids."""

    def score(names, rows, texts, samples, step, given):
        values, *_ = steps.letters(names, rows, texts, samples, step, given).values
        kept = [None if row.id in ids else x for row, x in zip(rows, values, strict=True)]
        return Scores([kept] * len(names), {"reward/errors": float(kept.count(None))})

    return score


def test_a_carried_baseline_is_the_running_mean_of_rewards(ready):
    executor, data = ready(running_mean, score=by_step(3.0, 5.0, -1.0))
    carry = executor.first()
    found = []

    for step in range(3):
        done = executor.step(carry, data, step)
        carry = done.carry
        found.append((carry["baseline"], done.metrics["advantage"]))

    assert found == [(2.0, 2.0), (3.5, 3.0), (1.25, -4.5)]


def test_a_carried_dict_keeps_its_structure(ready):
    executor, data = ready(counted, score=by_step(3.0, -5.0))

    carry, _ = steps.run(executor, data, steps=2)

    assert carry["state"] == {"seen": 4.0, "best": [3.0, 3.0]}


def test_the_first_carry_is_what_the_program_says(ready):
    executor, _ = ready(counted)

    assert executor.first()["state"] == {"seen": 0, "best": [0.0, -1.0]}


def test_a_group_with_a_failed_reward_is_dropped_and_the_others_train(ready):
    executor, data = ready(
        grpo, score=failing({1}), drop_failed=True, hyperparameters={"samples": 3}
    )
    before = steps.weights(executor.first())

    carry, metrics = steps.run(executor, data)

    after = steps.weights(carry)
    assert metrics["reward/errors"] == 3
    assert any(not torch.equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize(
    ("program", "options"),
    [(grpo, {"samples": 3}), (ppo, {"minibatch": 2}), (gdpo, {"samples": 3})],
)
def test_a_step_whose_groups_are_all_dropped_changes_nothing(ready, program, options):
    score = failing(range(8))
    executor, data = ready(program, score=score, drop_failed=True, hyperparameters=options)
    before = steps.weights(executor.first())

    carry, metrics = steps.run(executor, data)

    for key, value in steps.weights(carry).items():
        assert_close(value, before[key], rtol=0, atol=0)
    undefined = [name for name, x in metrics.items() if not math.isfinite(x)]
    assert {name.split("/")[0].rstrip("s") for name in undefined} == {"reward"}
    assert metrics["policy/grad_norm"] == 0


def test_of_no_rows_a_metric_is_no_number_and_a_carry_goes_on_with_zero(ready):
    executor, data = ready(running_mean, score=failing(range(8)), drop_failed=True)

    carry, metrics = steps.run(executor, data)

    assert carry["baseline"] == 0.5  # half of 1, and half of 0
    assert metrics["total"] == metrics["policy/loss"] == 0
    assert sorted(name for name, x in metrics.items() if math.isnan(x)) == snapshot(
        [
            "advantage",
            "reward_mean",
            "reward_p10",
            "reward_p50",
            "reward_p90",
            "reward_std",
            "reward_zero_variance",
        ]
    )


def test_a_failed_reward_that_is_not_dropped_counts_as_zero(ready):
    executor, data = ready(grpo, score=failing(range(8)))

    _, metrics = steps.run(executor, data)

    assert metrics["reward"] == 0


def test_data_that_is_not_given_is_named(ready):
    executor, _ = ready(grpo)

    with pytest.raises(EngineError) as error:
        executor.step(executor.first(), {}, 0)

    assert str(error.value) == snapshot("no data is given for `prompts`")


def test_a_model_that_is_not_given_is_named(model_folder, tokenizer):
    traced = fl.trace(grpo)
    roles = steps.roles(traced, model_folder)
    del roles["reference"]

    with pytest.raises(EngineError) as error:
        steps.executor(traced, roles, tokenizer)

    assert str(error.value) == snapshot("the graph uses `reference`, for which no model is given")
