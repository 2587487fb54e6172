import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError, RewardError
from flowrl.runtime.engine import Completion
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.host import Scores
from flowrl.runtime.model.models import ModelSpec
from programs.grpo import grpo
from tests.runtime import steps


@pytest.fixture(scope="module")
def ran(model_folder, tokenizer):
    """Run steps of a program; return the last carry, its metrics and the first weights."""

    def ran(
        program, *, count=1, data=steps.Texts, hyperparameters=None, options=steps.SMOOTH, **host
    ):
        traced = fl.trace(program, **(hyperparameters or {}))
        roles = steps.roles(traced, model_folder, options=options)
        executor = steps.executor(traced, roles, tokenizer, **host)
        before = steps.weights(executor.first())
        return *steps.run(executor, {traced.inputs[-1].name: data(tokenizer)}, steps=count), before

    return ran


@fl.program
def averaged(target: fl.Model, policy: fl.Model, pairs: fl.Pairs):
    before = ops.snapshot(policy)
    loss = lambda new: ops.token_mean(-new.logprobs, pairs.mask)
    policy, _ = ops.update(policy, loss, pairs)
    moved = (ops.logprobs(policy, pairs) - ops.logprobs(before, pairs)).abs().max(mask=pairs.mask)
    target = ops.ema(target, policy, decay=0.75)
    return target, policy, {"moved": moved}


def test_ema_weighs_the_target_by_decay_and_a_snapshot_stays(ran):
    carry, metrics, before = ran(averaged, data=steps.TwoAnswers)

    after = steps.weights(carry)
    for (role, name), old in before.items():
        if role == "target":
            expected = 0.75 * old + 0.25 * after["policy", name]
            assert_close(after[role, name], expected)
    assert metrics["moved"] > 0.01
    assert (carry["target"].version, carry["policy"].version) == (1, 1)


@fl.program
def heads(judge: fl.Model, critic: fl.Model, pairs: fl.Pairs):
    """Train a reward head and a value head towards 1, and read them."""
    values = ops.values(critic, pairs)

    def close(new):
        return ((new.rewards - 1) ** 2).mean()

    def near(new):
        return ops.token_mean((new.values - 1) ** 2, pairs.mask)

    judge, a = ops.update(judge, close, pairs)
    critic, b = ops.update(critic, near, pairs)
    return judge, critic, a | b | {"value": values.mean(mask=pairs.mask)}


def test_reward_and_value_heads_start_at_zero_and_learn(ran):
    _, first, _ = ran(heads, data=steps.TwoAnswers)
    _, last, _ = ran(heads, data=steps.TwoAnswers, count=6)

    assert first["judge/loss"] == first["critic/loss"] == 1
    assert first["value"] == 0
    assert last["judge/loss"] < 0.9
    assert last["critic/loss"] < 0.9
    assert last["value"] > 0


@fl.program
def judged(judge: fl.Model, policy: fl.Model, prompts: fl.Prompts, *, per="sample"):
    rollouts, rewards = ops.score(judge, ops.generate(policy, prompts, n=2), per=per)
    mask = {"mask": rollouts.mask} if per == "token" else {}
    return {"reward": rewards.mean(**mask)}


@pytest.mark.parametrize(("per", "of"), [("sample", "sequences"), ("token", "tokens")])
def test_a_model_scores_samples_or_tokens(per, of, model_folder, classifier_folder, tokenizer):
    traced = fl.trace(judged, per=per)
    folders = {"judge": classifier_folder("llama", of), "policy": model_folder("llama")}
    roles = {name: steps.role(folder) for name, folder in folders.items()}

    _, metrics = steps.run(
        steps.executor(traced, roles, tokenizer), steps.cursors(traced, tokenizer)
    )

    assert abs(metrics["reward"]) > 1e-3


@fl.program
def two_rewards(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts, n=2)
    _, rewards = ops.score("both", rollouts, names=("right", "short"))
    return {"sum": rewards.sum(over="reward").mean(), "best": rewards.max(over="reward").mean()}


def test_several_rewards_lie_on_an_axis_of_their_own(ran):
    def score(names, rows, texts, samples, step, given):
        assert names == ("right", "short")
        return Scores([[1.0] * len(texts), [5.0] * len(texts)], {})

    _, metrics, _ = ran(two_rewards, score=score)

    assert metrics["sum"] == 6
    assert metrics["best"] == 5


class Wrapped:
    """The real generator, but for one thing that it does otherwise."""

    def __init__(self, folder, tokenizer):
        self.real = HFGenerator(ModelSpec(folder), tokenizer)
        self.load, self.generate = self.real.load, self.real.generate


class Stale(Wrapped):
    """A generator that never takes new weights."""

    def __init__(self, folder, tokenizer):
        super().__init__(folder, tokenizer)
        self.load = lambda weights, version: None


class Untempered(Wrapped):
    """A generator that reports log-probabilities of the distribution at temperature 1."""

    def __init__(self, folder, tokenizer):
        super().__init__(folder, tokenizer)
        self.generate = self.untempered

    def untempered(self, requests, sampling):
        done = self.real.generate(requests, sampling)
        return [
            [Completion(c.tokens, self.plain(r.prompt, c.tokens), c.truncated) for c in group]
            for r, group in zip(requests, done, strict=True)
        ]

    def plain(self, prompt, tokens):
        with torch.no_grad():
            logits = self.real.model(torch.tensor([[*prompt, *tokens]])).logits[0]
        shifted = logits[len(prompt) - 1 : -1].log_softmax(-1)
        return shifted.gather(-1, torch.tensor(tokens)[:, None])[:, 0].tolist()


@fl.program
def tempered(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2, temperature=0.6))
    advantages = ops.group_advantage(rewards)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages)
        return ops.token_mean(surrogate, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


GAP = "policy/logprob_gap_max"


@pytest.mark.parametrize("program", [grpo, tempered])
def test_engine_and_trainer_agree_on_what_was_sampled(ran, program):
    _, metrics, _ = ran(program, count=3)

    assert metrics[GAP] < 1e-4


def test_the_gap_shows_an_engine_with_stale_weights(ran, model_folder, tokenizer):
    engine = Stale(model_folder("llama"), tokenizer)

    _, first, _ = ran(tempered, generator=engine)
    _, second, _ = ran(tempered, generator=engine, count=2)

    assert first[GAP] < 1e-4
    assert second[GAP] > 0.1


def test_the_gap_shows_untempered_log_probabilities(ran, model_folder, tokenizer):
    _, metrics, _ = ran(tempered, generator=Untempered(model_folder("llama"), tokenizer))

    assert metrics[GAP] > 0.1


def test_a_reward_that_fails_ends_the_step_with_its_own_words(ran):
    def score(names, rows, texts, samples, step, given):
        raise RewardError("the function `r.py:f` raised KeyError: 'x'", where=f"  {rows[0].where}")

    with pytest.raises(RewardError, match="raised KeyError"):
        ran(grpo, score=score)


def test_a_step_without_rewards_says_what_to_bind(ran):
    with pytest.raises(EngineError) as error:
        ran(grpo, score=None)

    assert error.value.problem == snapshot("score: no rewards are bound")
    assert 'ops.score("reward", rollouts)' in error.value.where
    assert error.value.hint == snapshot("add `[reward.reward]`")


@fl.program
def exploding(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts)
    loss = lambda new: ops.token_mean((new.logprobs * -1e30).exp(), rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


def test_a_loss_that_is_not_finite_names_the_update_and_changes_no_weight(ran):
    with pytest.raises(EngineError) as error:
        ran(exploding)

    assert error.value.problem == snapshot(
        "update: policy: the loss of step 1 is inf; no weight was changed"
    )
    assert "ops.update(policy, loss, rollouts)" in error.value.where


@fl.op("f32[..., token] -> f32[..., token]", per="token")
def squared(logprobs):
    return torch.as_tensor(logprobs.detach().numpy() ** 2)


@fl.program
def cut_off(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts, n=2)
    loss = lambda new: ops.token_mean(squared(new.logprobs), rollouts.mask)
    policy, _ = ops.update(policy, loss, rollouts)
    return policy, {}


def test_a_loss_that_a_users_op_cuts_off_names_the_update(ran):
    with pytest.raises(EngineError) as error:
        ran(cut_off)

    assert error.value.problem == snapshot(
        "update: the loss has no gradient path to the model's outputs: it would train nothing"
    )
    assert "ops.update(policy, loss, rollouts)" in error.value.where
