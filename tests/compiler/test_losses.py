"""One pass where a loss is a sum over rows, two where it isn't, and the same numbers in both."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl import ops
from flowrl.compiler.cluster import Cluster
from flowrl.compiler.losses import split_losses
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.printer import text
from flowrl.ir.trace import building, located
from flowrl.ir.verify import verify
from flowrl.runtime.graph.graph_loss import GraphLoss
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Host
from programs.dpo import dpo
from programs.grpo import grpo
from programs.ppo import ppo
from tests.graphs import HERE, begin, inputs, token_loss
from tests.ir.source import traced

STEP = """
@fl.program
def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=4))
    mask = rollouts.mask

    def loss(new):
        return {}

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
"""


def updates(graph):
    """Return the updates of a graph and of those inside it, split."""
    split = verify(split_losses(graph, Cluster()))
    return [n.op for g in split.nested() for n in g.nodes if n.op.name == "update"]


def split(loss):
    """Return the split update of a loss written as an expression of `new`."""
    (op,) = updates(traced(STEP.replace("return {}", f"return {loss}", 1)))
    return op


ONE_PASS = {
    "a mean over tokens": "ops.token_mean(-new.logprobs, mask)",
    "a mean over sequences": "ops.sequence_mean(new.entropy * rewards, mask)",
    "a masked method": "new.logprobs.mean(mask=mask)",
    "sums over tokens, then a mean": "(new.logprobs.sum(over='token', mask=mask) * rewards).mean()",
    "means over tokens, then a sum": "new.values.mean(over='token', mask=mask).sum()",
    "one number a sample": "((new.rewards - rewards) ** 2.0).mean()",
    "two reductions with coefficients": "0.5 * ops.token_mean(new.logprobs, mask) - ops.sequence_mean(new.entropy, mask) / 3.0",
    "a coefficient of the batch": "rewards.mean() * ops.token_mean(new.logprobs, mask)",
    "a forward pass of another model": "ops.token_mean(ops.kl(new.logprobs, ops.logprobs(reference, rollouts)), mask)",
    "detached weights": "ops.token_mean(new.logprobs.detach().exp() * new.logprobs, mask)",
}
TWO_PASSES = {
    "ops.token_mean(new.logprobs, mask) ** 2.0": "pow of a reduced loss isn't a sum over rows at example.py:9",
    "ops.token_mean(new.logprobs, mask).exp()": "exp of a reduced loss isn't a sum over rows at example.py:9",
    "ops.token_mean(new.logprobs, mask) * ops.token_mean(new.entropy, mask)": "mul of a reduced loss isn't a sum over rows at example.py:9",
    "ops.token_mean(new.logprobs, mask) / ops.token_mean(new.entropy, mask)": "div of a reduced loss isn't a sum over rows at example.py:9",
    "new.logprobs.std(mask=mask)": "std looks beyond single sequences at example.py:9",
    "ops.group_advantage(new.rewards).mean()": "group_advantage looks beyond single sequences at example.py:9",
    "ops.token_mean(new.logprobs, new.logprobs > -1.0)": "token_mean looks beyond single sequences at example.py:9",
    "ops.token_mean(ops.clip_cov(new.logprobs, rollouts.logprobs, rewards, mask), mask)": "clip_cov looks beyond single sequences at example.py:9",
}


@pytest.mark.parametrize("loss", ONE_PASS.values(), ids=ONE_PASS)
def test_a_sum_over_rows_runs_in_one_pass(loss):
    op = split(loss)

    assert (op.passes, op.why) == (1, "")


@pytest.mark.parametrize(("loss", "why"), TWO_PASSES.items())
def test_another_loss_runs_in_two_passes_and_says_why(loss, why):
    op = split(loss)

    assert (op.passes, op.why) == (2, why)


@pytest.mark.parametrize("program", [grpo, ppo], ids=["grpo", "ppo"])
def test_grpo_and_ppo_run_in_one_pass(program):
    assert {op.passes for op in updates(program.trace().graph)} == {1}


def test_pairs_couple_two_sequences():
    (op,) = updates(dpo.trace().graph)

    assert (op.passes, op.why) == snapshot(
        (2, "dpo_loss looks beyond single sequences at dpo.py:16")
    )


def test_the_prologue_has_the_divisors_and_the_part_the_totals():
    op = split(
        "ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, ops.group_advantage(rewards)), mask)"
    )

    assert text(op.prologue, locations=False) == snapshot("""\
graph prologue
  input %outer.0: f32[prompt'2, sample'2]
  input %outer.2: bool[prompt'2, sample'2, token'2]
  %0: f32[prompt'2, sample'2] = group_advantage(%outer.0) {norm_by_std=True, ddof=1, eps=1e-06, nonfinite=raise}
  %1: f32[] = token_mean_divisor(%outer.2)
  return fixed.0=%0, fixed.1=%1\
""")
    assert text(op.part, locations=False) == snapshot("""\
graph part
  input %new.logprobs: f32[prompt'2, sample'2, token'2]{policy.0 T=1}
  input %outer.1: f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled}
  input %outer.2: bool[prompt'2, sample'2, token'2]
  input %fixed.0: f32[prompt'2, sample'2]
  input %fixed.1: f32[]
  %0: f32[prompt'2, sample'2, token'2] = clipped_surrogate(%new.logprobs, %outer.1, %fixed.0) {clip=0.2}
  %1: f32[] = token_mean_total(%0, %outer.2)
  %2: f32[] = div(%1, %fixed.1)
  return loss=%2\
""")


@st.composite
def losses(draw):
    """Draw an update whose loss captures inputs only, and the graph that it stands in."""
    builder = GraphBuilder("random")
    with building(builder), located(HERE):
        made = begin(builder)
        loss = lambda new: token_loss(draw, made, new)
        policy, _ = ops.update(made.models["policy"], loss, made.rollouts)
    return builder.finish([("policy", policy)])


@given(graph=losses(), given=inputs(), cuts=st.lists(st.integers(0, 9), max_size=3))
@settings(max_examples=60, deadline=None)
def test_parts_of_any_microbatches_add_up_to_the_loss_and_its_gradient(graph, given, cuts):
    graph = split_losses(graph, Cluster())
    (node,) = graph.nodes
    named = {value: given[name] for name, value in graph.inputs}
    lengths = given["tokens"].lengths
    captured = [named[arg] for arg in node.args[3:]]
    run = Interpreter(Host()).run
    loss = GraphLoss(node.op, captured, given["tokens"], 0, run)
    new = outputs(node.op.reads, lengths)

    whole, gradients = loss.cotangents(new)
    if node.op.passes == 1:
        leaves = {name: x.clone().requires_grad_() for name, x in new.items()}
        bounds = sorted({0, len(lengths[1]), *(min(cut, len(lengths[1])) for cut in cuts)})
        rows = [torch.arange(a, b) for a, b in pairwise(bounds)]
        parts = [loss.part(few(leaves, lengths[1], chosen), chosen) for chosen in rows]
        total = sum(parts, torch.zeros(()))
        if parts:
            total.backward()

        torch.testing.assert_close(total.detach(), whole, check_dtype=False)
        for name, x in leaves.items():
            got = torch.zeros_like(x) if x.grad is None else x.grad
            torch.testing.assert_close(got, gradients[name], check_dtype=False)


def outputs(names, lengths):
    """Return what a model might say of rows of these lengths."""
    sizes = {
        name: len(lengths[1]) if name == "rewards" else int(lengths[1].sum()) for name in names
    }
    generator = torch.Generator().manual_seed(0)
    return {
        n: torch.randn(size, generator=generator, dtype=torch.float64) for n, size in sizes.items()
    }


def few(new, lengths, rows):
    """Return the outputs of some rows, which follow one another."""
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    tokens = slice(int(ends[rows[0]]), int(ends[rows[-1] + 1]))
    return {n: x[rows] if n == "rewards" else x[tokens] for n, x in new.items()}
