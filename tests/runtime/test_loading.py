import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.ops.uses import uses_of


@fl.program
def one_model(model: fl.Model, pairs: fl.Pairs):
    values = ops.values(model, pairs)
    model, stats = ops.update(model, lambda new: ops.token_mean(-new.logprobs, pairs.mask), pairs)
    return model, stats | {"value": values.mean(mask=pairs.mask)}


@fl.program
def collisions(model: fl.Model, pairs: fl.Pairs):
    return {"collision": ops.collision(model, pairs).mean(mask=pairs.mask)}


@fl.program
def judged_by_itself(policy: fl.Model, prompts: fl.Prompts):
    _, rewards = ops.score(policy, ops.generate(policy, prompts))
    return {"reward": rewards.mean()}


def test_a_model_read_for_tokens_and_values_has_both_heads():
    assert uses_of(fl.trace(one_model).lower().graph)["model"].head == "lm+value"


def test_collisions_are_read_of_a_language_model():
    assert uses_of(fl.trace(collisions).lower().graph)["model"].head == "lm"


@fl.program
def averaged(target: fl.Model, policy: fl.Model, pairs: fl.Pairs):
    values = ops.values(target, pairs)
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, pairs.mask), pairs)
    return (
        ops.ema(target, policy, decay=0.5),
        policy,
        stats | {"value": values.mean(mask=pairs.mask)},
    )


def test_models_that_are_averaged_have_one_head():
    uses = uses_of(fl.trace(averaged).lower().graph)

    assert {role: of.head for role, of in uses.items()} == {
        "target": "lm+value",
        "policy": "lm+value",
    }
    assert not uses["target"].trains


def test_a_reward_head_beside_another_is_refused():
    uses = uses_of(fl.trace(judged_by_itself).lower().graph)["policy"]

    with pytest.raises(EngineError) as error:
        _ = uses.head

    assert str(error.value) == snapshot("""\
`policy` is read as lm and reward: only lm and value heads share a model
  test_loading.py:24
   24 |     _, rewards = ops.score(policy, ops.generate(policy, prompts))
                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  test_loading.py:24
   24 |     _, rewards = ops.score(policy, ops.generate(policy, prompts))
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: make them two models of the program\
""")
