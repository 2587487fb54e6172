"""Each value crosses once to each pool that reads it; weights cross by transfers only."""

from inline_snapshot import snapshot

from flowrl.compiler.pipeline import compile_graph
from flowrl.ir.types import ModelType
from flowrl.ops.move import Transfer
from programs.grpo import grpo
from programs.ppo import ppo
from tests.graphs import CLUSTERS
from tests.ir.source import STEP, traced


def moved(graph):
    """Return what crosses in a graph, nested graphs left out: type, from, to."""
    nodes = [node for node in graph.nodes if isinstance(node.op, Transfer)]
    return [f"{node.args[0].type} {node.op.src}->{node.op.dst}" for node in nodes]


def synced(graph):
    """Return how many models cross in a graph and those inside it."""
    nodes = [node for inner in graph.nested() for node in inner.nodes]
    return sum(isinstance(n.op, Transfer) and isinstance(n.args[0].type, ModelType) for n in nodes)


def test_on_one_pool_nothing_moves():
    graph = compile_graph(ppo.trace().graph, CLUSTERS[1])

    assert [moved(inner) for inner in graph.nested() if moved(inner)] == []


def test_grpo_on_two_pools():
    graph = compile_graph(grpo.trace().graph, CLUSTERS[2])

    assert moved(graph) == snapshot(
        [
            "model<policy> train->rollout",
            "row[prompt] rollout->train",
            "i32[prompt, sample, token] rollout->train",
            "selection[prompt'2, sample'2, token'2, context'2] train->rollout",
            "i32[prompt'2, context'2] rollout->train",
            "i32[prompt'2, sample'2, token'2] rollout->train",
            "f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} rollout->train",
            "bool[prompt'2, sample'2, token'2] rollout->train",
            "i32[prompt'2, sample'2] rollout->train",
        ]
    )


def test_grpo_on_three_pools():
    graph = compile_graph(grpo.trace().graph, CLUSTERS[3])

    assert moved(graph) == snapshot(
        [
            "model<policy> train->rollout",
            "i32[prompt, context] host->rollout",
            "row[prompt] host->rollout",
            "i32[prompt, sample, token] rollout->host",
            "selection[prompt'2, sample'2, token'2, context'2] host->rollout",
            "i32[prompt'2, context'2] host->rollout",
            "i32[prompt'2, context'2] host->train",
            "i32[prompt'2, sample'2, token'2] rollout->train",
            "f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} rollout->train",
            "f32[prompt'2, sample'2] host->train",
            "f32[prompt'2, sample'2, token'2]{reference.0 T=1} rollout->train",
            "bool[prompt'2, sample'2, token'2] rollout->train",
            "i32[prompt'2, sample'2] rollout->train",
        ]
    )


def test_the_body_of_a_scan_fetches_the_rows_of_its_minibatch():
    graph = compile_graph(ppo.trace().graph, CLUSTERS[3])

    (scan,) = [node for node in graph.nodes if node.op.name == "scan"]
    assert moved(scan.op.body) == snapshot(
        [
            "i32[prompt'3, context'3] host->train",
            "i32[prompt'3, sample'3, token'3] rollout->train",
            "f32[prompt'3, sample'3, token'3]{policy.0 T=1 sampled} rollout->train",
            "f32[prompt'3, sample'3, token'3] rollout->train",
            "bool[prompt'3, sample'3, token'3] rollout->train",
            "i32[prompt'3, sample'3] rollout->train",
            "f32[prompt'3, sample'3, token'3] rollout->train",
        ]
    )


def test_weights_are_synced_once_a_version():
    graph = compile_graph(
        traced(
            STEP
            + """\
    again = ops.generate(policy, prompts, n=2)
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, again.mask), again)
    newer = ops.generate(policy, prompts, n=2)
    return policy, {"length": ops.count(newer.mask)}
"""
        ),
        CLUSTERS[3],
    )

    assert synced(graph) == 2


def test_branches_give_their_results_in_one_place():
    graph = compile_graph(
        traced(
            STEP
            + """\
    anchor = ops.logprobs(reference, rollouts)
    chosen = ops.cond(rewards.mean() > 0.5, lambda: anchor * 1.0, lambda: rollouts.mask.float())
    return {"x": ops.token_mean(chosen, rollouts.mask)}
"""
        ),
        CLUSTERS[3],
    )

    (cond,) = [node for node in graph.nodes if node.op.name == "cond"]
    ends = [region.outputs[0][1].pool for region in (cond.op.then, cond.op.orelse)]
    assert ends == [cond.results[0].pool] * 2


def test_a_carry_ends_its_turn_where_it_began():
    graph = compile_graph(
        traced(
            STEP
            + """\
    def body(total, mb):
        return total + ops.token_mean(ops.logprobs(reference, mb), mb.mask), {}

    total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
    return {"total": total}
"""
        ),
        CLUSTERS[3],
    )

    (scan,) = [node for node in graph.nodes if node.op.name == "scan"]
    body = scan.op.body
    assert body.outputs[0][1].pool == body.inputs[0][1].pool == scan.results[0].pool == "host"
