"""Every model value has a layout, and every op reads its model in the layout of its use."""

import attrs
import pytest
from hypothesis import given
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.ir.types import ModelType
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Reshard, Transfer
from programs.dapo import dapo
from programs.grpo import grpo
from programs.ppo import ppo
from tests.graphs import CLUSTERS, graphs

TOGETHER = Cluster(
    (
        Pool(
            "all",
            8,
            ("policy", "critic", "reference"),
            {"policy.train": "fsdp8", "policy.generate": "tp2 x dp4", "critic": "fsdp8"},
        ),
    )
)


def reshards(graph):
    """Return each reshard of a graph and those inside it, as it is printed."""
    nodes = [node for node in graph.walk() if isinstance(node.op, Reshard)]
    return [f"{n.args[0].type} -> {n.results[0].type} @{n.pool}" for n in nodes]


def test_one_pool_reshards_what_it_generates_from():
    graph = compile_graph(ppo.trace().graph, TOGETHER)

    assert reshards(graph) == snapshot(["model<policy, fsdp8> -> model<policy, tp2 x dp4> @all"])


def test_two_pools_reshard_across():
    rollout = Pool("rollout", 4, ("policy.generate",), {"policy": "tp4"}, first=8)
    cluster = Cluster((attrs.evolve(TOGETHER.pools[0], roles=("policy.train",)), rollout))

    graph = compile_graph(grpo.trace().graph, cluster)

    assert reshards(graph) == snapshot(["model<policy, fsdp8> -> model<policy, tp4> @rollout"])


def test_equal_layouts_in_one_pool_need_no_reshard():
    cluster = Cluster((Pool("all", 8, ("policy", "reference"), {"policy": "fsdp8"}),))

    assert reshards(compile_graph(grpo.trace().graph, cluster)) == []


def test_equal_layouts_in_two_pools_need_one():
    one = Pool("train", 4, ("policy.train",), {"policy": "fsdp4"})
    other = Pool("rollout", 4, ("policy.generate",), {"policy": "fsdp4"}, first=4)

    assert reshards(compile_graph(dapo.trace().graph, Cluster((one, other)))) == snapshot(
        ["model<policy, fsdp4> -> model<policy, fsdp4> @rollout"]
    )


def test_a_model_scores_in_the_layout_that_it_trains_in():
    assert TOGETHER.layout_of("policy", "score") == "fsdp8"
    assert TOGETHER.layout_of("critic", "score") == "fsdp8"
    assert TOGETHER.layout_of("reference", "score") == ""


def test_weights_that_nobody_lays_out_cross_whole():
    graph = compile_graph(ppo.trace().graph, CLUSTERS[2])

    assert reshards(graph) == []
    assert any(isinstance(n.args[0].type, ModelType) for n in graph.nodes if type(n.op) is Transfer)


@pytest.mark.parametrize("cluster", [TOGETHER, CLUSTERS["laid out"]], ids=["one", "two"])
@given(graph=graphs(models=True))
def test_every_op_reads_its_model_in_the_layout_of_its_use(cluster, graph):
    compiled = compile_graph(graph, cluster)

    for node in compiled.walk():
        if isinstance(node.op, ModelOp):
            model = node.args[0].type
            assert model.layout == cluster.layout_of(model.role, node.op.use), node
