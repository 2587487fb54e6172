"""Every value has a pool: that of its model's role and use, or of its largest argument."""

from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.place import place
from flowrl.ir.verify import verify
from programs.grpo import grpo
from programs.ppo import ppo
from tests.graphs import CLUSTERS


def pools(graph, *names):
    """Return the pool of the first node of each name."""
    nodes = {node.op.name: node.pool for inner in graph.nested() for node in reversed(inner.nodes)}
    return {name: nodes[name] for name in names}


def test_a_use_of_a_role_goes_where_the_run_file_says():
    graph = verify(place(grpo.trace().graph, CLUSTERS[3]))

    assert pools(graph, "generate", "score", "logprobs", "update") == {
        "generate": "rollout",
        "score": "host",
        "logprobs": "rollout",
        "update": "train",
    }


def test_a_model_scores_where_it_is_trained():
    cluster = Cluster(
        (Pool("rollout", 1, ("policy.generate",)), Pool("train", 1, ("policy.train",)))
    )

    assert cluster.pool_of("policy", "score") == "train"
    assert cluster.pool_of("policy", "generate") == "rollout"


def test_what_no_pool_claims_goes_to_the_first():
    graph = verify(place(grpo.trace().graph, CLUSTERS[2]))

    assert pools(graph, "logprobs", "score") == {"logprobs": "train", "score": "train"}


def test_models_live_where_they_are_trained_or_else_read():
    graph = verify(place(ppo.trace().graph, CLUSTERS[3]))

    assert {name: value.pool for name, value in graph.inputs} == snapshot(
        {
            "policy": "train",
            "critic": "train",
            "reference": "rollout",
            "prompts.context": "host",
            "prompts.rows": "host",
        }
    )


def test_a_model_comes_out_of_a_scan_where_it_went_in():
    graph = verify(compile_graph(ppo.trace().graph, CLUSTERS[3]))

    outputs = dict(graph.outputs)
    assert {outputs["policy"].pool, outputs["critic"].pool} == {"train"}
