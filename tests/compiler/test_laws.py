"""Laws of every pass: it keeps the meaning, ends where it started, and leaves a valid graph."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowrl.compiler.pipeline import PASSES, compile_graph
from flowrl.compiler.simplify import STEPS
from flowrl.config.programs import builtin_programs, load_program
from flowrl.functional.ragged import Ragged
from flowrl.ir.plan import decode, encode
from flowrl.ir.printer import text
from flowrl.ir.verify import verify
from flowrl.ops.control import ControlOp
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import Constant
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Host
from flowrl.stages import trace
from tests.graphs import CLUSTERS, graphs, inputs

RANDOM = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
each_pass = pytest.mark.parametrize("run", PASSES, ids=lambda run: run.__name__)
each_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
each_program = pytest.mark.parametrize("name", builtin_programs())
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)


def stages(graph, cluster):
    """Return the graph before and after each pass."""
    found = [graph]
    compile_graph(graph, cluster, lambda name, made: found.append(made))
    return found


def equal(a, b):
    """Return whether two results are the same, bit for bit."""
    if isinstance(a, Ragged):
        same = [x.equal(y) for x, y in zip(a.lengths, b.lengths, strict=True)]
        return all(same) and torch.equal(a.values, b.values)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def results(graph, given):
    """Return the outputs of a graph without models."""
    return Interpreter(Host()).run(graph, [given[name] for name, _ in graph.inputs])


@given(graphs(), inputs(), st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_every_pass_keeps_the_meaning(graph, given, cluster):
    expected = results(graph, given)

    for stage in stages(graph, cluster):
        assert all(map(equal, results(stage, given), expected)), text(stage)


@each_pass
@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_a_pass_run_again_changes_nothing(run, graph, cluster):
    for stage in stages(graph, cluster):
        if stage is not graph:
            once = verify(run(stage, cluster))
            assert text(verify(run(once, cluster))) == text(once)


@each_step
@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_a_step_of_simplify_run_again_changes_nothing(step, graph, cluster):
    for stage in stages(graph, cluster):
        once = verify(step(stage))
        assert text(verify(step(once))) == text(once)


@each_program
@each_cluster
def test_compiling_a_compiled_program_changes_nothing(name, cluster):
    once = compile_graph(trace(load_program(name)).graph, cluster)

    assert text(compile_graph(once, cluster)) == text(once)


@each_program
@each_cluster
def test_a_pass_run_again_on_a_program_changes_nothing(name, cluster):
    for stage in stages(trace(load_program(name)).graph, cluster)[1:]:
        for run in PASSES:
            once = verify(run(stage, cluster))
            assert text(verify(run(once, cluster))) == text(once)


@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_compiling_a_compiled_graph_changes_nothing(graph, cluster):
    once = compile_graph(graph, cluster)

    assert text(compile_graph(once, cluster)) == text(once)


@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_only_transfers_and_control_flow_read_from_another_pool(graph, cluster):
    compiled = compile_graph(graph, cluster)

    for inner in controlled(compiled):
        numbers = {v for n in inner.nodes if isinstance(n.op, Constant) for v in n.results}
        for node in inner.nodes:
            if not isinstance(node.op, Transfer | ControlOp):
                assert {arg.pool for arg in node.args if arg not in numbers} <= {node.pool}


@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_nested_graphs_get_and_give_values_where_they_are(graph, cluster):
    compiled = compile_graph(graph, cluster)

    for node in (node for inner in controlled(compiled) for node in inner.nodes):
        for name, region in node.op.regions().items() if isinstance(node.op, ControlOp) else ():
            given = [value.pool for value in node.op.handed_in(name, node.args)]
            assert [value.pool for _, value in region.inputs] == given
            wanted = node.op.pools_of_outputs(name)
            pairs = zip(region.outputs, wanted, strict=True)
            numbers = {v for n in region.nodes if isinstance(n.op, Constant) for v in n.results}
            assert all(v.pool == pool for (_, v), pool in pairs if pool and v not in numbers)


@given(graph=graphs(models=True), cluster=st.sampled_from(list(CLUSTERS.values())))
@RANDOM
def test_a_graph_is_the_same_when_decoded(graph, cluster):
    for stage in stages(graph, cluster):
        again = verify(decode(encode(stage)))

        assert text(again) == text(stage)
        assert encode(again) == encode(stage)


def controlled(graph):
    """Return a graph and those that its control flow runs, losses left out."""
    inner = [g for n in graph.nodes if isinstance(n.op, ControlOp) for g in n.op.regions().values()]
    return [graph, *(g for region in inner for g in controlled(region))]
