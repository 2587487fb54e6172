"""The weights after two steps are those of `plain_more`."""

from functools import partial

import pytest

from flowrl.config.programs import load_program
from tests.programs import plain, plain_more
from tests.programs.against import assert_same, follow, measured

OPTIONS = {
    "cispo": {"samples": 3, "clip_high": 0.5},
    "clip_cov": {"samples": 3, "fraction": 1.0, "low": 0.0, "high": 50.0},
    "distill": {"samples": 2},
    "gdpo": {"samples": 3, "weights": (1.0, 0.5)},
    "gspo": {"samples": 3, "clip": 0.5, "clip_high": 0.7},
    "kl_cov": {"samples": 3, "fraction": 0.2, "beta": 0.3},
    "online_dpo": {"beta": 0.2},
    "opo": {"samples": 3},
    "otb": {"samples": 3},
    "raft": {"samples": 3},
    "reinforce_pp": {"kl_coef": 0.2},
    "reinforce_pp_baseline": {"samples": 3, "kl_coef": 0.3},
}
"""The hyperparameters that `plain_more` has as numbers."""


@pytest.mark.parametrize("name", OPTIONS)
def test_it_steps_as_plain_torch_does(name, ran, policy, reference):
    record, metrics, weights = ran(load_program(name), **OPTIONS[name])

    loss = partial(getattr(plain_more, name), policy, reference)
    rewards = record.rewards or [None] * len(record.groups)
    last = follow(policy, [partial(loss, *b) for b in zip(record.groups, rewards, strict=True)])

    assert measured(metrics) == last
    assert_same(weights, policy)


def test_a_reward_model_steps_as_plain_torch_does(ran, model_folder):
    record, metrics, weights = ran(load_program("reward_model"), margin=0.5)

    model = plain.reward_model(model_folder("llama"))
    pairs = record.updated("model")
    last = follow(model, [partial(plain.bradley_terry, model, p, 0.5) for p in pairs])

    assert measured(metrics, "model") == last
    assert_same(weights, model, "model")


def test_prime_steps_as_plain_torch_does(ran, policy, reference, model_folder):
    record, metrics, weights = ran(load_program("prime"), samples=3, beta=0.3, gamma=0.9)

    model = plain.language_model(model_folder("llama"))
    policy_steps, model_steps = plain.AdamW(policy), plain.AdamW(model)
    for batch in zip(record.groups, record.rewards, strict=True):
        surrogate = plain_more.prime(policy, model, reference, *batch, 0.3, 0.9)
        judge = plain_more.outcome_loss(model, reference, *batch, 0.3)
        last = surrogate.item(), policy_steps.step(surrogate), judge.item(), model_steps.step(judge)

    assert [*measured(metrics), *measured(metrics, "reward_model")] == pytest.approx(last, abs=1e-9)
    assert_same(weights, policy)
    assert_same(weights, model, "reward_model")
