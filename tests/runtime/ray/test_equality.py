"""A program gives the same weights, bit for bit, in one process and on any pools of Ray."""

import pytest

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.errors import EngineError
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import jobs

DATA = Pool("data", 0, ("data", "reward"))
SPLITS = {
    "one pool": (Pool("main"),),
    "data apart": (Pool("main"), DATA),
    "policy and reference": (
        Pool("policy", 0, ("policy",)),
        Pool("rest", 0, ("reference", "critic")),
        DATA,
    ),
    "policy, reference and critic": (
        Pool("policy", 0, ("policy",)),
        Pool("reference", 0, ("reference",)),
        Pool("critic", 0, ("critic",)),
        DATA,
    ),
    "sampling apart": (
        Pool("train", 0, ("policy.train", "critic")),
        Pool("rollout", 0, ("policy.generate",)),
        DATA,
    ),
}
PROGRAMS = {
    "grpo": (grpo, {"samples": 3, "kl_coef": 0.3}),
    "ppo": (ppo, {"minibatch": 2, "epochs": 2}),
}


@pytest.fixture(scope="module")
def local(model_folder, tokenizer):
    """Return the metrics of each step and the weights after five steps in this process."""
    done = {}

    def local(program, **hyperparameters):
        key = (program, *hyperparameters.items())
        if key not in done:
            traced = fl.trace(program, **hyperparameters)
            here = steps.executor(traced, steps.roles(traced, model_folder, block=4), tokenizer)
            done[key] = jobs.run(here, {"prompts": steps.Texts(tokenizer)})
        return done[key]

    return local


@pytest.fixture
def on_ray(model_folder, tokenizer, pools, tmp_path):
    """Return the same of a program on Ray."""

    def on_ray(program, split, workers=(), **hyperparameters):
        traced = fl.trace(program, **hyperparameters)
        lowered = traced.lower(Cluster(split), steps.roles(traced, model_folder, block=4))
        sizes = dict.fromkeys([pool.name for pool in split], 1) | dict(workers)
        there = jobs.executor(lowered, tokenizer, pools(**sizes))
        metrics, carry = jobs.run(there, there.cursors())
        there.save(str(tmp_path))
        return metrics, carry, tmp_path

    return on_ray


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_weights_are_those_of_one_process_however_models_are_split_over_pools(
    name, split, local, on_ray
):
    program, hyperparameters = PROGRAMS[name]

    there = on_ray(program, SPLITS[split], **hyperparameters)

    jobs.assert_equal(local(program, **hyperparameters), there)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("pool", ["one pool", "sampling apart"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_weights_are_those_of_one_process_however_many_workers_sample(
    name, pool, workers, local, on_ray
):
    program, hyperparameters = PROGRAMS[name]
    split = SPLITS[pool]
    sampling = next((p.name for p in split if "policy.generate" in p.roles), split[0].name)

    there = on_ray(program, split, {sampling: workers}, **hyperparameters)

    jobs.assert_equal(local(program, **hyperparameters), there)


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="group")
def centred(rewards):
    return rewards - rewards.mean()


@fl.program
def everything(
    policy: fl.Model,
    average: fl.Model,
    prompts: fl.Prompts,
    target: fl.Carry = fl.Carry({"level": 0.5}),
):
    """Draw until groups differ, choose a side, average models, carry a number."""

    def draw(prompts):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=3))
        return ops.record(rollouts, rewards=rewards)

    batch, surplus, drawn = ops.sample_until(
        draw,
        lambda r: r.rewards.mean(over="sample") > target["level"],
        prompts,
        groups=3,
        rounds=4,
        shortfall="accept",
    )
    batch = ops.record(batch, advantages=centred(batch.rewards))
    old = ops.snapshot(policy)
    anchor = ops.logprobs(old, batch)
    batch = ops.record(batch, anchor=anchor)

    def train(policy):
        def body(policy, mb):
            policy, stats = ops.update(
                policy,
                lambda new: ops.token_mean(
                    ops.clipped_surrogate(new.logprobs, mb.anchor, mb.advantages, clip=0.2), mb.mask
                ),
                mb,
            )
            return policy, stats

        policy, stats = ops.scan(
            body, policy, ops.minibatches(batch, sequences=4, epochs=2, balance="tokens")
        )
        return policy, stats["policy/loss"].mean()

    policy, loss = ops.cond(batch.rewards.mean() > 0.1, train, lambda policy: (policy, 0.0), policy)
    average = ops.ema(average, policy, decay=0.9)
    seen = lambda most, mb: (ops.maximum(most, ops.count(mb.mask)), {"tokens": ops.count(mb.mask)})
    largest, turns = ops.scan(seen, 0.0, ops.microbatches(batch, max_tokens=20, by="sequence"))
    level = 0.9 * target["level"] + 0.1 * batch.rewards.mean()
    metrics = {"loss": loss, "drawn": drawn.float(), "left": surplus.rewards.sum()}
    metrics |= {"largest": largest, "tokens": turns["tokens"].sum()}
    return policy, average, {"level": level}, metrics


def test_all_of_the_language_runs_on_pools(local, on_ray):
    split = (
        Pool("train", 0, ("policy.train",)),
        Pool("rollout", 0, ("policy.generate",)),
        Pool("average", 0, ("average",)),
        DATA,
    )

    there = on_ray(everything, split, {"rollout": 2})

    jobs.assert_equal(local(everything), there)
    assert there[0][-1]["drawn"] > 0


@fl.program
def cut_off(policy: fl.Model, critic: fl.Model, prompts: fl.Prompts):
    """Train a critic on returns that go on after samples that the token limit cut off."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=2))
    values, bootstrap = ops.values(critic, rollouts), ops.bootstrap_values(critic, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask)
    _, returns = ops.gae(rewards, values, rollouts.mask, bootstrap, gamma=0.9, lam=0.9)

    def loss(new):
        return ops.token_mean(ops.clipped_value(new.values, values, returns), rollouts.mask)

    critic, stats = ops.update(critic, loss, rollouts)
    return critic, stats | {"bootstrap": bootstrap.sum()}


def test_values_after_samples_that_were_cut_off_are_those_of_one_process(local, on_ray):
    there = on_ray(cut_off, SPLITS["policy, reference and critic"])

    jobs.assert_equal(local(cut_off), there)
    assert there[0][-1]["bootstrap"] != 0


@fl.program
def unfilled(policy: fl.Model, prompts: fl.Prompts):
    draw = lambda prompts: ops.score("reward", ops.generate(policy, prompts, n=2))
    keep = lambda drawn: ops.has_signal(drawn[1] * 0.0)
    (rollouts, _), _, _ = ops.sample_until(draw, keep, prompts, groups=3, rounds=2)
    return ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)


def test_a_batch_that_cannot_be_filled_is_told_as_in_one_process(local, on_ray):
    told = []
    for run in (lambda: local(unfilled), lambda: on_ray(unfilled, SPLITS["sampling apart"])):
        with pytest.raises(EngineError) as error:
            run()
        told.append(str(error.value))

    assert told[0] == told[1]
    assert "all samples have the same `reward` in " in told[0]
    assert "prompts, groups=3, rounds=2)" in told[0]
