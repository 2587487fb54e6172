"""Randomness: what a sample's tokens depend on, and what they don't."""

import pytest
import torch

import flowrl as fl
from flowrl import ops
from flowrl.runtime.host import Host, Scores
from programs.grpo import grpo
from tests.runtime import steps


@fl.program
def sampling(policy: fl.Model, prompts: fl.Prompts, *, samples=2):
    """Score two rollouts of the same prompts, so that their texts come by."""
    _, first = ops.score("first", ops.generate(policy, prompts, n=samples))
    _, second = ops.score("second", ops.generate(policy, prompts, n=samples))
    return {"first": first.mean(), "second": second.mean()}


@pytest.fixture(scope="module")
def texts(model_folder, tokenizer):
    """Run a step; return the completions of both rollouts, each as {(row, sample): text}."""

    def texts(prompts=steps.TEXTS[:3], *, step=0, seed=0, block=1, samples=2):
        found = {}

        def score(names, rows, completions, numbers, at, given):
            keys = [(row.prompt, number) for row, number in zip(rows, numbers, strict=True)]
            found[names[0]] = list(zip(keys, completions, strict=True))
            return Scores([[0.0] * len(rows)], {})

        traced = fl.trace(sampling, samples=samples)
        roles = steps.roles(traced, model_folder, block=block)
        executor = steps.executor(
            traced, roles, tokenizer, rows=len(prompts), score=score, seed=seed
        )
        steps.run(executor, {"prompts": steps.Texts(tokenizer, prompts)}, first=step)
        return found["first"], found["second"]

    return texts


def test_a_sample_is_the_same_whatever_other_rows_are_in_the_batch(texts):
    three, _ = texts()
    more, _ = texts((*steps.TEXTS[:3], *steps.TEXTS[3:6]))
    wider, _ = texts(samples=5)

    assert more[:6] == three
    assert dict(three).items() <= dict(wider).items()


def test_samples_differ_by_op_step_seed_and_sample_number(texts):
    first, second = texts()

    others = [second, texts(step=1)[0], texts(seed=1)[0]]
    assert all([t for _, t in other] != [t for _, t in first] for other in others)
    assert first[0][1] != first[1][1]


def test_two_rows_of_one_id_are_sampled_apart(tokenizer):
    row = steps.Texts(tokenizer).take(1).rows[0]

    seeds = Host().row_seeds([row, row], 0)

    assert seeds[0] != seeds[1]
    assert Host().row_seeds([row], 0) == seeds[:1]


def test_a_run_repeats_bit_for_bit(texts):
    assert texts(block=4) == texts(block=4)


def test_training_repeats_bit_for_bit_and_follows_its_seed(model_folder, tokenizer):
    traced = fl.trace(grpo, samples=2)

    def trained(seed):
        roles = steps.roles(traced, model_folder)
        executor = steps.executor(traced, roles, tokenizer, seed=seed)
        carry, metrics = steps.run(executor, {"prompts": steps.Texts(tokenizer)}, steps=2)
        return metrics, steps.weights(carry)

    metrics, weights = trained(0)
    again, same = trained(0)
    other, _ = trained(1)

    assert again == metrics != other
    assert all(torch.equal(same[key], weights[key]) for key in weights)


def test_new_weights_for_what_samples_are_a_phase_of_their_own(
    model_folder, tokenizer, monkeypatch
):
    traced = fl.trace(sampling)
    roles, nothing = steps.roles(traced, model_folder), Scores([[0.0] * 8], {})
    executor = steps.executor(traced, roles, tokenizer, score=lambda *_: nothing)
    (generator,) = executor.host.generators.values()
    load, now = generator.load, [0.0]

    def slow(*weights):
        now[0] += 7.0
        load(*weights)

    monkeypatch.setattr(generator, "load", slow)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    done = executor.step(executor.first(), {"prompts": steps.Texts(tokenizer)}, 0)

    assert done.seconds == {"data": 0.0, "weights": 7.0, "generate": 0.0, "reward": 0.0}


def test_evaluation_draws_seeds_of_its_own():
    training = Host(seed=3)
    evaluation = Host(seed=training.seed_of(-1))

    seeds = {training.seed_of(number, 0, 0) for number in range(100)}

    assert seeds.isdisjoint({evaluation.seed_of(number, 0, 0) for number in range(100)})


def test_seeds_follow_from_run_step_and_every_part():
    seeds = set()
    for seed in range(3):
        host = Host(seed=seed)
        for step in range(3):
            host.begin(step, {})
            seeds |= {
                host.seed_of(*parts) for parts in ((), (0,), (1,), (0, 0), (0, 1), (11,), (1, 1))
            }

    assert len(seeds) == 63
    assert all(0 <= seed < 2**62 for seed in seeds)
