"""Corrected programs: their graphs, and the weights after two steps against `plain_corrected`."""

import math
from functools import partial

import pytest
from inline_snapshot import external_file, snapshot

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import ProgramError
from flowrl.ir.printer import text
from flowrl.ops.model import Logprobs
from programs.dapo import dapo
from programs.grpo import grpo
from programs.ppo import ppo
from programs.rloo import rloo
from tests.programs import plain, plain_corrected
from tests.programs.against import assert_same, follow, measured
from tests.programs.small import small
from tests.runtime import steps

OPTIONS = [
    ("token", "truncate", None, 1.5),
    ("token", "mask", 0.5, 1.5),
    ("sequence", "truncate", None, 20.0),
    ("sequence", "mask", 1.0, 20.0),
]
NAMES = ("level", "mode", "low", "high")


def corrected(program, options):
    return fl.corrected(program, **dict(zip(NAMES, options, strict=True)))


def acts(metrics, options):
    """Return whether a bound acted, on some tokens but not on all."""
    if options[1] == "mask":
        return 0 < metrics["policy/kept_fraction"] < 1
    highest = metrics["policy/weight_max"] == pytest.approx(options[3])
    return highest and metrics["policy/weight_mean"] < options[3]


@pytest.mark.parametrize("options", OPTIONS)
def test_corrected_grpo_steps_as_plain_torch_does(ran, policy, reference, options):
    record, metrics, weights = ran(corrected(grpo, options), samples=3, kl_coef=0.3)

    batches = zip(record.groups, record.rewards, strict=True)
    loss = partial(plain_corrected.grpo, policy, reference)
    last = follow(policy, [partial(loss, *batch, *options) for batch in batches])

    assert acts(metrics, options)
    assert measured(metrics) == last
    assert_same(weights, policy)


@pytest.mark.parametrize("options", OPTIONS)
def test_corrected_rloo_steps_as_plain_torch_does(ran, policy, reference, options):
    record, metrics, weights = ran(corrected(rloo, options), samples=3, kl_coef=0.0)

    batches = zip(record.groups, record.rewards, strict=True)
    loss = partial(plain_corrected.rloo, policy, reference)
    last = follow(policy, [partial(loss, *batch, *options) for batch in batches])

    assert acts(metrics, options)
    assert measured(metrics) == last
    assert_same(weights, policy)


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_corrected_ppo_keeps_its_weights_over_the_epochs_of_a_batch(
    ran, policy, reference, model_folder, options
):
    record, _, weights = ran(corrected(ppo, options), epochs=2, kl_coef=0.2)

    critic = plain.critic_model(model_folder("llama"))
    policy_steps, critic_steps = plain.AdamW(policy), plain.AdamW(critic)
    for groups, rewards in zip(record.groups, record.rewards, strict=True):
        batch = plain.flat(groups), plain.flat(rewards)
        losses = plain_corrected.ppo(policy, critic, reference, *batch, *options)
        for _ in range(2):
            surrogate, error = losses()
            policy_steps.step(surrogate)
            critic_steps.step(error)

    assert_same(weights, policy)
    assert_same(weights, critic, "critic")


@pytest.mark.parametrize("program", [grpo, ppo], ids=lambda program: program.name)
def test_the_weights_stand_in_the_graph(program):
    graph = fl.trace(fl.corrected(program)).graph

    assert text(graph) + "\n" == external_file(f"corrected/{program.name}.ir", format=".txt")


def test_one_update_a_batch_takes_no_further_forward_pass():
    forwards = [
        [
            node.args[0]
            for node in fl.trace(program).lower().graph.walk()
            if node.op == Logprobs(1.0)
        ]
        for program in (grpo, fl.corrected(grpo))
    ]

    assert [len(models) for models in forwards] == [1, 1]


@pytest.mark.parametrize("program", [dapo, ppo], ids=lambda program: program.name)
def test_a_correction_in_two_pools_gives_the_same(program, model_folder, tokenizer):
    traced = fl.trace(fl.corrected(program), **small(program))
    split = Cluster((Pool("train"), Pool("rest", 0, ("policy.generate", "data", "reward"))))
    roles = steps.roles(traced, model_folder)

    results = []
    for graph in (traced.lower().graph, traced.lower(split).graph):
        made = steps.executor(traced, roles, tokenizer, graph=graph)
        results.append(steps.run(made, steps.cursors(traced, tokenizer), steps=2)[1])

    assert results[0] == results[1]


def test_every_program_with_a_policy_gradient_is_corrected_and_takes_steps(model_folder, tokenizer):
    refused = []
    for name in builtin_programs():
        program = fl.corrected(load_program(name))
        try:
            traced = fl.trace(program, **small(program))
        except ProgramError:
            refused.append(name)
            continue
        made = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
        _, metrics = steps.run(made, steps.cursors(traced, tokenizer), steps=1)
        assert 0 < metrics["policy/weight_mean"] < math.inf

    assert refused == snapshot(
        ["distill", "dpo", "evaluate", "online_dpo", "raft", "reward_model", "sft"]
    )
