"""What a step does with models: each op once, with how often, on how many sequences, after what."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.target import Lengths, Workload
from flowrl.compiler.tasks import moves_of, seats_of, tasks_of
from flowrl.config.programs import builtin_programs, load_program
from programs.dapo import dapo
from programs.dpo import dpo
from programs.grpo import grpo
from programs.pf_ppo import pf_ppo
from programs.ppo import ppo
from programs.sft import sft
from tests.graphs import CLUSTERS
from tests.ir.source import STEP, traced

LENGTHS = Lengths.of(100), Lengths.of(300)
WORKLOAD = Workload(64, *LENGTHS)


def shown(program, workload=WORKLOAD, cluster=CLUSTERS[1], **hyperparameters):
    graph = compile_graph(program.trace(hyperparameters).graph, cluster)
    return [
        f"{task}: {task.sequences:g} sequences, {task.times:g} times, after {list(task.after)}"
        for task in tasks_of(graph, workload)
    ]


def test_grpo():
    assert shown(grpo, samples=8) == snapshot(
        [
            "%0 generate policy: 512 sequences, 1 times, after []",
            "%8 logprobs reference: 512 sequences, 1 times, after [0]",
            "%9 update policy: 512 sequences, 1 times, after [0, 1]",
        ]
    )


def test_ppo_updates_in_the_turns_of_its_scan():
    assert shown(ppo, minibatch=16, epochs=2) == snapshot(
        [
            "%0 generate policy: 64 sequences, 1 times, after []",
            "%7 values critic: 64 sequences, 1 times, after [0]",
            "%8 logprobs reference: 64 sequences, 1 times, after [0]",
            "%15/%0 update policy: 16 sequences, 8 times, after [0, 1, 2]",
            "%15/%1 update critic: 16 sequences, 8 times, after [0, 1, 2]",
        ]
    )


def test_a_buffer_is_trained_on_when_it_is_full():
    assert shown(pf_ppo, samples=5, capacity=100, minibatch=50, epochs=1) == snapshot(
        [
            "%0 generate policy: 320 sequences, 1 times, after []",
            "%19 logprobs reference: 320 sequences, 1 times, after [0]",
            "%29 values critic: 500 sequences, 1 times, after [0]",
            "%36/%0 update policy: 50 sequences, 10 times, after [0, 1, 2]",
            "%36/%1 update critic: 50 sequences, 10 times, after [0, 1, 2]",
        ]
    )


def test_dynamic_sampling_draws_for_its_expected_rounds_and_trains_on_its_groups():
    workload = Workload(96, *LENGTHS, rounds=1.5)

    assert shown(dapo, workload, groups=48, samples=4, minibatch=96) == snapshot(
        [
            "%0/%0 generate policy: 384 sequences, 1.5 times, after []",
            "%3/%0 update policy: 96 sequences, 2 times, after [0]",
        ]
    )


def test_data_that_brings_its_pairs():
    assert shown(dpo) == snapshot(
        [
            "%0 logprobs reference: 128 sequences, 1 times, after []",
            "%1 update policy: 128 sequences, 1 times, after [0]",
        ]
    )


def test_a_step_takes_as_many_examples_as_prompts():
    assert shown(sft) == snapshot(["%0 update policy: 64 sequences, 1 times, after []"])


def test_microbatches_are_as_many_as_the_tokens_ask_for():
    graph = traced(
        STEP
        + """\
    parts = ops.microbatches(rollouts, max_tokens=6400)
    policy, stats = ops.scan(lambda policy, mb: ops.update(
        policy, lambda new: ops.token_mean(-new.logprobs, mb.mask), mb), policy, parts)
    return policy, stats
"""
    )

    update = tasks_of(compile_graph(graph, Cluster()), WORKLOAD)[-1]

    assert (update.sequences, update.times) == (16, 16)


def test_a_loss_of_pairs_takes_two_passes():
    graph = compile_graph(dpo.trace().graph, Cluster())

    assert [t.passes for t in tasks_of(graph, WORKLOAD) if t.kind == "update"] == [2]


def test_seats_are_the_uses_of_models():
    tasks = tasks_of(compile_graph(ppo.trace().graph, Cluster()), WORKLOAD)

    assert list(map(str, seats_of(tasks))) == snapshot(
        ["policy.generate", "critic.score", "reference.score", "policy.train", "critic.train"]
    )


@pytest.mark.parametrize("name", builtin_programs())
def test_placing_a_program_changes_no_task(name):
    graph = load_program(name).trace().graph
    placed = [compile_graph(graph, cluster) for cluster in CLUSTERS.values()]

    tasks = [tasks_of(each, WORKLOAD) for each in placed]

    for each in tasks[1:]:
        same = [(t.kind, t.seat, t.sequences, t.times, t.passes, t.after) for t in each]
        assert same == [(t.kind, t.seat, t.sequences, t.times, t.passes, t.after) for t in tasks[0]]


@pytest.mark.parametrize("name", builtin_programs())
def test_every_task_has_work_and_comes_after_what_it_needs(name):
    for number, task in enumerate(tasks_of(load_program(name).trace().graph, WORKLOAD)):
        assert task.times > 0
        assert task.sequences > 0 or task.kind in ("snapshot", "ema")
        assert all(0 <= before < number for before in task.after)


def test_what_moves_between_pools_is_counted_in_bytes():
    graph = compile_graph(ppo.trace({"minibatch": 16}).graph, CLUSTERS[2])

    moves = {
        f"{m.name} {m.node.args[0].type}": (m.bytes, m.times) for m in moves_of(graph, WORKLOAD)
    }

    assert moves == snapshot(
        {
            "%0 model<policy>": (0.0, 1),
            "%2 row[prompt]": (512, 1),
            "%3 i32[prompt, sample, token]": (76800.0, 1),
            "%5 selection[prompt'2, sample'2, token'2, context'2]": (512, 1),
            "%11 i32[prompt'2, context'2]": (25600.0, 1),
            "%12 i32[prompt'2, sample'2, token'2]": (76800.0, 1),
            "%15 f32[prompt'2, sample'2, token'2]{reference.0 T=1}": (76800.0, 1),
            "%18 f32[prompt'2, sample'2]": (256, 1),
            "%20 f32[prompt'2, sample'2, token'2]": (76800.0, 1),
            "%24/%0 i32[prompt'3, context'3]": (6400.0, 8),
            "%24/%1 i32[prompt'3, sample'3, token'3]": (19200.0, 8),
            "%24/%2 f32[prompt'3, sample'3, token'3]{policy.0 T=1 sampled}": (19200.0, 8),
            "%24/%3 f32[prompt'3, sample'3, token'3]": (19200.0, 8),
            "%24/%4 bool[prompt'3, sample'3, token'3]": (4800.0, 8),
            "%24/%5 i32[prompt'3, sample'3]": (64.0, 8),
            "%24/%7 f32[prompt'3, sample'3, token'3]": (19200.0, 8),
        }
    )
