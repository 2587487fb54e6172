"""The gradient of each loss is the same for one pass, two passes and any microbatches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster
from flowrl.compiler.losses import split_losses
from flowrl.errors import EngineError, Location
from flowrl.functional.ragged import Ragged
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.records import Prompts, Rollouts
from flowrl.ir.trace import building
from flowrl.ir.types import DType, ModelType, Origin, TensorType, boolean, f32, i32
from flowrl.ops.model import Update
from flowrl.runtime.graph.graph_loss import GraphLoss
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Host

HERE = Location("test_losses.py", 1)

# fmt: off
LOSSES = {
    "ppo": lambda new, r, a: ops.token_mean(
        ops.clipped_surrogate(new.logprobs, r.logprobs, a, clip_high=0.3, dual_clip=3.0), r.mask),
    "grpo": lambda new, r, a: ops.sequence_mean(
        ops.clipped_surrogate(new.logprobs, r.logprobs, a) + 0.1 * ops.kl(new.logprobs, r.logprobs),
        r.mask),
    "dr_grpo": lambda new, r, a: ops.horizon_mean(
        ops.clipped_surrogate(new.logprobs, r.logprobs, a), r.mask, horizon=9),
    "gspo": lambda new, r, a: ops.sequence_mean(
        ops.sequence_surrogate(new.logprobs, r.logprobs, a, r.mask, clip=0.1), r.mask),
    "cispo": lambda new, r, a: ops.token_mean(ops.cispo(new.logprobs, r.logprobs, a), r.mask),
    "decoupled": lambda new, r, a: ops.aggregate(
        ops.decoupled(new.logprobs, r.logprobs - 0.1, r.logprobs, a, weight_cap=2.0),
        r.mask, mode="seq-mean-token-sum", denominator="all"),
    "reinforce": lambda new, r, a: ops.sequence_sum_mean(ops.reinforce(new.logprobs, a), r.mask),
    "weighted": lambda new, r, a: ops.token_mean(
        ops.importance_weights(r.logprobs, r.logprobs * 0.9, r.mask, level="sequence")[0]
        * ops.reinforce(new.logprobs, a), r.mask),
    "unbiased kl": lambda new, r, a: ops.token_mean(
        ops.kl(new.logprobs, r.logprobs - 0.2, r.logprobs, gradient="unbiased"), r.mask),
    "entropy": lambda new, r, a: ops.token_mean(
        ops.reinforce(new.logprobs, a) - 0.01 * new.entropy, r.mask),
    "critic": lambda new, r, a: ops.token_mean(
        ops.clipped_value(new.values, r.logprobs, a), r.mask),
    "clip_cov": lambda new, r, a: ops.token_mean(
        ops.clip_cov(new.logprobs, r.logprobs, a, r.mask, fraction=0.3, low=-9.0), r.mask),
    "kl_cov": lambda new, r, a: ops.token_mean(
        ops.kl_cov(new.logprobs, r.logprobs, a, r.mask, fraction=0.3), r.mask),
    "whitened": lambda new, r, a: ops.token_mean(
        ops.reinforce(new.logprobs, ops.whiten(a * new.logprobs, r.mask)), r.mask),
}
# fmt: on
TWO_PASSES = {"clip_cov", "kl_cov", "whitened"}


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def traced(loss):
    """Return an update on this loss, its operands and the inputs of the graph around it."""
    builder = GraphBuilder("step")
    prompt, context, sample, token = (
        builder.axis(name, "test", HERE) for name in ("prompt", "context", "sample", "token")
    )
    axes = (prompt, sample, token)
    types = {
        "policy": ModelType("policy"),
        "context": i32(prompt, context),
        "rows": TensorType(DType.ROW, (prompt,)),
        "tokens": i32(*axes),
        "logprobs": TensorType(DType.F32, axes, Origin("policy", 0, 1.0, sampled=True)),
        "mask": boolean(*axes),
        "truncated": boolean(*axes[:2]),
        "version": i32(*axes[:2]),
        "advantages": f32(*axes[:2]),
    }
    values = {name: builder.input(name, type) for name, type in types.items()}
    policy, context, rows, *fields, advantages = values.values()
    rollouts = Rollouts(Prompts(context, rows), *fields)
    with building(builder):
        model, _ = ops.update(policy, lambda new: loss(new, rollouts, advantages), rollouts)
    return split_losses(builder.finish([("policy", model)]), Cluster())


def rollouts_of(sizes, seed):
    """Return fields by name: random tokens, of which the first and some others are trained."""
    draw = torch.Generator().manual_seed(seed)
    levels = (
        torch.tensor([len(group) for group in sizes]),
        torch.tensor([n for group in sizes for n in group]),
    )
    count, samples = int(levels[1].sum()), len(levels[1])
    number = lambda n: torch.randn(n, generator=draw)
    mask = torch.rand(count, generator=draw) < 0.7
    mask[:2] = True
    return {
        "tokens": Ragged(torch.zeros(count, dtype=torch.int64), levels),
        "logprobs": Ragged(number(count), levels),
        "mask": Ragged(mask, levels),
        "truncated": Ragged(torch.zeros(samples, dtype=torch.bool), levels[:1]),
        "version": Ragged(torch.zeros(samples, dtype=torch.int64), levels[:1]),
        "advantages": Ragged(number(samples), levels[:1]),
    }


def loss_of(graph, data):
    """Return the graph's loss on fields by name, as a trainer sees it."""
    interpreter = Interpreter(Host())
    known = {value: data.get(name) for name, value in graph.inputs}
    for node in graph.nodes:
        if isinstance(node.op, Update):
            captured = [known[arg] for arg in node.args[3:]]
            return GraphLoss(node.op, captured, data["tokens"], 0, interpreter.run)
        results = interpreter.evaluate(node, [known[arg] for arg in node.args], ())
        known.update(zip(node.results, results, strict=True))
    raise AssertionError("the graph has no update")


SIZES = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3
).filter(lambda sizes: sum(map(sum, sizes)) > 2)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=10, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99), parts=st.integers(1, 4))
def test_microbatches_add_up_to_the_gradient_of_the_batch(name, sizes, seed, parts):
    graph = traced(LOSSES[name])
    loss = loss_of(graph, rollouts_of(sizes, seed))
    lengths = loss.lengths[-1]
    draw = torch.Generator().manual_seed(seed + 1)
    new = {key: torch.randn(int(lengths.sum()), generator=draw) for key in loss.op.reads}

    expected, gradients = loss.cotangents(new)

    assert loss.one_pass is (name not in TWO_PASSES)
    if loss.one_pass:
        shares, got = in_parts(loss, new, torch.randint(parts, (len(lengths),), generator=draw))
    else:
        shares, got = loss.cotangents(new)
    torch.testing.assert_close(shares, expected, rtol=0, atol=1e-12)
    for key, gradient in gradients.items():
        torch.testing.assert_close(got[key], gradient, rtol=0, atol=1e-12)


def in_parts(loss, new, part_of_row):
    """Return the sum of the shares of microbatches, and their gradients added up."""
    rows_of_tokens = part_of_row.repeat_interleave(loss.lengths[-1])
    leaves = {key: x.clone().requires_grad_() for key, x in new.items()}
    total = torch.zeros(())
    for part in part_of_row.unique():
        rows = (part_of_row == part).nonzero()[:, 0]
        total = total + loss.part({k: x[rows_of_tokens == part] for k, x in leaves.items()}, rows)
    total.backward()
    return total.detach(), {key: x.grad for key, x in leaves.items()}


def test_clip_cov_draws_anew_in_each_step_and_turn_and_the_same_when_run_again():
    graph = traced(LOSSES["clip_cov"])
    data = rollouts_of([[40] * 3] * 3, seed=0)
    update = next(node for node in graph.nodes if isinstance(node.op, Update))

    def held_back(step, turn):
        host = Host(step=step)
        run = lambda region, inputs: Interpreter(host).run(region, inputs, (turn,))
        loss = loss_of(graph, data)
        loss.run = run
        return loss.cotangents({"logprobs": data["logprobs"].values})[1]["logprobs"] == 0

    first = held_back(0, 0)

    assert update.op.passes == 2
    assert torch.equal(held_back(0, 0), first)
    assert not torch.equal(held_back(1, 0), first)
    assert not torch.equal(held_back(0, 1), first)


@fl.op("f32[..., token] -> f32[..., token]", per="token")
def cut(x):
    return x.detach() * 2


@pytest.mark.parametrize(
    "reduce", [ops.token_mean, lambda x, mask: ops.whiten(x, mask).mean(mask=mask)]
)
def test_a_loss_that_a_users_op_cuts_off_from_the_model_is_refused(reduce):
    graph = traced(lambda new, r, a: reduce(cut(new.logprobs), r.mask))
    loss = loss_of(graph, rollouts_of([[2, 3]], seed=0))
    new = {"logprobs": torch.zeros(5, requires_grad=True)}

    with pytest.raises(EngineError) as error:
        loss.part(new, torch.arange(2)) if loss.one_pass else loss.cotangents(new)

    assert str(error.value) == snapshot("""\
the loss has no gradient path to the model's outputs: it would train nothing
help: an `@fl.op` in it cuts it off, by `detach`, `item`, numpy or `no_grad`: compute with torch alone\
""")


def test_rows_without_a_token_have_a_share_without_a_gradient():
    graph = traced(lambda new, r, a: ops.token_mean(cut(new.logprobs), r.mask))
    loss = loss_of(graph, rollouts_of([[0, 3]], seed=0))

    assert loss.part({"logprobs": torch.zeros(0, requires_grad=True)}, torch.tensor([0])) == 0
