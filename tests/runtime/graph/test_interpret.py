"""Each pass keeps what a program means: the interpreter on its graph says so."""

import pytest
import torch
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.errors import EngineError
from flowrl.runtime.host import Host
from programs.dpo import dpo
from programs.evaluate import evaluate
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps


@fl.program
def recomputed(policy: fl.Model, prompts: fl.Prompts):
    """Both the ratio's denominator and a constant are a forward pass of the version trained."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=3))
    old = ops.logprobs(policy, rollouts)
    advantages = ops.group_advantage(rewards)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, old, advantages)
        again = ops.group_advantage(rewards) * 0.1
        return ops.sequence_mean(surrogate - again * old, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


PROGRAMS = {
    "grpo": (grpo, {"samples": 3, "kl_coef": 0.3}),
    "grpo without kl": (grpo, {"samples": 3, "kl_coef": 0.0}),
    "ppo": (ppo, {"minibatch": 3, "epochs": 2}),
    "dpo": (dpo, {}),
    "evaluate": (evaluate, {"samples": 2, "pass_at": (1, 2)}),
    "recomputed": (recomputed, {}),
}
INEXACT = {"simplify": {"recomputed"}, "split_losses": set(PROGRAMS)}
"""Where an elided or a split forward pass rounds otherwise: equal to 1e-6."""
POOLS = Cluster((Pool("train"), Pool("rollout", roles=("policy.generate", "data", "reward"))))


@pytest.fixture(scope="module")
def outcome(model_folder, tokenizer):
    """Run two steps of a graph; return the metrics of the last and the weights after it."""

    def outcome(traced, graph):
        folders = steps.roles(traced, model_folder, options=steps.SMOOTH)
        ready = steps.executor(traced, folders, tokenizer, graph=graph)
        data = steps.TwoAnswers if traced.inputs[-1].data == "Pairs" else steps.Texts
        carry, metrics = steps.run(ready, {traced.inputs[-1].name: data(tokenizer)}, steps=2)
        return metrics, steps.weights(carry)

    return outcome


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_pass_keeps_meaning(name, outcome):
    program, hyperparameters = PROGRAMS[name]
    traced = fl.trace(program, **hyperparameters)
    graphs = {"trace": traced.graph}
    compile_graph(traced.graph, POOLS, graphs.__setitem__)

    before, trained = outcome(traced, traced.graph)
    for done, graph in graphs.items():
        after, now = outcome(traced, graph)

        close = 1e-6 if name in INEXACT.get(done, ()) else 0
        assert after.keys() == before.keys()
        assert after == pytest.approx(before, rel=close, abs=close)
        for key, value in now.items():
            assert_close(value, trained[key], rtol=0, atol=close)
        before, trained = after, now


def test_an_error_that_nobody_foresaw_ends_in_the_line_of_the_program(model_folder, tokenizer):
    def score(names, rows, texts, samples, step, given):
        raise MemoryError

    traced = fl.trace(grpo)
    executor = steps.executor(traced, steps.roles(traced, model_folder), tokenizer, score=score)

    with pytest.raises(MemoryError) as error:
        steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    (note,) = error.value.__notes__
    assert note.startswith("in score\n  grpo.py:")
    assert 'ops.score("reward", rollouts)' in note


@pytest.mark.parametrize(
    ("doing", "said", "told"),
    [
        (
            "generator",
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 1.16 GiB. Process 9 has 89 GiB memory in use."
                " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
            ),
            "CUDA out of memory. Tried to allocate 1.16 GiB. Process 9 has 89 GiB memory in use.",
        ),
        (
            "take",
            RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:62"),
            "CUDA Error: out of memory at cumem_allocator.cpp:62",
        ),
    ],
    ids=["torch", "vLLM as it wakes"],
)
def test_a_gpu_without_memory_is_told_with_the_op_and_what_takes_less(
    doing, said, told, model_folder, tokenizer, monkeypatch
):
    def full(*_):
        raise said

    traced = fl.trace(grpo)
    executor = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    monkeypatch.setattr(Host, doing, full)

    with pytest.raises(EngineError) as error:
        steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    lines = str(error.value).splitlines()
    assert lines[0] == f"generate: {told}"
    assert lines[1].startswith("  grpo.py:")
    assert lines[-1].startswith("help: lower `tokens_per_microbatch`")
