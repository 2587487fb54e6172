"""A program on concrete values: the same numbers as compiled, and there to look at."""

import re

import pytest
import torch
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import FlowrlError
from flowrl.runtime.engine import Sampling
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.replay import replayed

PROMPTS = list(steps.TEXTS[:4])


@pytest.fixture
def session(model_folder, tokenizer):
    """Open a session on tiny models; return it and the models of a program's roles."""
    opened = []

    def session(traced, **options):
        roles = steps.roles(traced, model_folder)
        rewards = {"reward": letters}
        opened.append(fl.session(rewards=rewards, optimizer=steps.SMOOTH, **options))
        made = {}
        for name, setup in roles.items():
            tokenizer.save_pretrained(setup.model.path)
            head = "value" if name == "critic" else "lm"
            made[name] = opened[-1].model(name, setup.model.path, head=head)
        return opened[-1], list(made.values())

    yield session
    for each in opened:
        each.close()


def letters(completions):
    """Score as `steps.letters` does."""
    return steps.letters(("reward",), (), completions, (), 0, {}).values[0]


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (grpo, {"samples": 2, "kl_coef": 0.1}),
        (ppo, {"minibatch": 2}),
        (fl.corrected(ppo, high=1.1), {"minibatch": 2}),
    ],
)
def test_a_program_on_a_session_equals_the_compiled_one(
    session, model_folder, tokenizer, program, options
):
    traced = fl.trace(program, **options)
    executor = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    texts = steps.Texts(tokenizer, tuple(PROMPTS))
    carry, expected = steps.run(executor, {"prompts": texts}, steps=2)

    eager, models = session(traced, sampling=Sampling(max_tokens=6))
    prompts = eager.prompts(PROMPTS)
    for _ in range(2):
        *trained, metrics = program(*models, prompts, **options)
        models = [*trained, *models[len(trained) :]]

    got = {name: float(as_metric(name, value)) for name, value in metrics.items()}
    assert got == {name: value for name, value in expected.items() if name in got}
    assert got.keys() >= {"policy/loss", "policy/grad_norm"}
    for model in models:
        weights = carry[model.role].engine.weights()
        assert all(torch.equal(w, weights[name]) for name, w in model.data.engine.weights().items())


def as_metric(name, value):
    """Return a metric as the compiled program returns it: one number a turn becomes one."""
    kinds = {"_min": "min", "_max": "max", "_logprob_gap_mean": "max"}
    own = f"_{name.rpartition('/')[2]}"
    kind = next((kind for end, kind in kinds.items() if own.endswith(end)), "mean")
    return getattr(value, kind)() if value.type.axes else value


def test_carried_values_go_from_call_to_call(session):
    @fl.program
    def counted(
        policy: fl.Model, prompts: fl.Prompts, state: fl.Carry = fl.Carry({"steps": 0, "sum": 0})
    ):
        _, rewards = ops.score("reward", ops.generate(policy, prompts))
        return {"steps": state["steps"] + 1, "sum": state["sum"] + rewards.mean()}, {}

    eager, (policy, _) = session(fl.trace(grpo), sampling=Sampling(max_tokens=4))
    state = eager.carry({"steps": 0, "sum": 0})
    for _ in range(3):
        state, _ = counted(policy, eager.prompts(PROMPTS), state)

    assert float(state["steps"]) == 3
    assert float(state["sum"]) > 0


def test_a_buffer_goes_from_call_to_call(session):
    eager, (policy,) = session(fl.trace(replayed), sampling=Sampling(max_tokens=4))
    replay = eager.carry(fl.Buffer())
    samples = []
    for _ in range(3):
        policy, replay, stats = replayed(policy, eager.prompts(PROMPTS), replay, capacity=10)
        samples.append(float(stats["samples"]))

    assert samples == [8, 16, 20]
    assert len(replay.rows.prompts.rows.data) == 10


def test_values_are_there_to_print_and_to_branch_on(session):
    seen = []

    @fl.program
    def looked_at(policy: fl.Model, prompts: fl.Prompts):
        _, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
        seen.append((repr(rewards), float(rewards.mean()), bool(rewards.max() > 0)))
        return policy, {}

    eager, (policy, _) = session(fl.trace(grpo), sampling=Sampling(max_tokens=4))
    looked_at(policy, eager.prompts(PROMPTS[:1]))
    looked_at(policy, eager.prompts(PROMPTS[:1]))

    text, mean, positive = seen[0]
    assert re.fullmatch(r"f32\[prompt'\d, sample'\d\] = \[tensor\(\[[\d., ]+\]\)\]", text)
    assert positive == (mean > 0)
    assert seen[1] != seen[0]  # another step, other seeds


def test_a_session_samples_as_it_was_told(session):
    eager, models = session(fl.trace(grpo), sampling=Sampling(temperature=0.5, max_tokens=4))

    rollouts = ops.generate(models[0], eager.prompts(PROMPTS))
    again = ops.logprobs(models[0], rollouts)

    assert rollouts.logprobs.type.origin.temperature == 0.5
    assert float((rollouts.logprobs - again).abs().max(mask=rollouts.mask)) < 1e-4


def test_a_version_that_is_used_up_is_refused_with_the_line(session):
    eager, (policy, *_) = session(fl.trace(grpo), sampling=Sampling(max_tokens=4))
    rollouts = ops.generate(policy, eager.prompts(PROMPTS))
    ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)

    with pytest.raises(FlowrlError) as error:
        ops.logprobs(policy, rollouts)

    assert error.value.problem == snapshot(
        "logprobs: `policy` is at version 1; version 0 was asked for, which is gone"
    )
    assert "ops.logprobs(policy, rollouts)" in error.value.where


def test_a_snapshot_still_says_what_its_version_said(session):
    eager, (policy, *_) = session(fl.trace(grpo), sampling=Sampling(max_tokens=4))
    rollouts = ops.generate(policy, eager.prompts(PROMPTS))
    before = ops.logprobs(policy, rollouts)
    kept = ops.snapshot(policy)
    loss = lambda new: ops.token_mean(-new.logprobs, rollouts.mask)

    policy, _ = ops.update(policy, loss, rollouts)

    assert torch.equal(ops.logprobs(kept, rollouts).data.values, before.data.values)
    assert not torch.equal(ops.logprobs(policy, rollouts).data.values, before.data.values)
