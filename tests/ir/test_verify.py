"""Each rule of the verifier, broken by a graph made by hand."""

import attrs
import pytest
from inline_snapshot import snapshot

from flowrl.ir.graph import Graph, Node, new_value
from flowrl.ir.types import Axis, f32
from flowrl.ir.verify import VerifyError, verify
from programs.grpo import grpo
from programs.ppo import ppo
from tests.ir.source import STEP, traced

GRAPH = traced(STEP + "    return {'mean': (rewards + 1.0).mean()}\n")
UPDATED = grpo.trace().graph


def refusal(graph):
    """Return what the verifier says of a malformed graph."""
    with pytest.raises(VerifyError) as error:
        verify(graph)
    return str(error.value)


def nodes_of(graph, change):
    """Return the graph with its list of nodes changed."""
    nodes = list(graph.nodes)
    change(nodes)
    return attrs.evolve(graph, nodes=tuple(nodes))


def place_of(graph, name):
    """Return the place of the last node of this name."""
    return max(i for i, node in enumerate(graph.nodes) if node.op.name == name)


@pytest.mark.parametrize("program", [grpo, ppo], ids=["grpo", "ppo"])
def test_a_traced_program_is_valid(program):
    graph = program.trace().graph

    assert verify(graph) is graph


def test_a_value_used_before_it_is_made():
    assert refusal(nodes_of(GRAPH, list.reverse)) == snapshot(
        "graph step: mean (example.py:4) uses a value before it is made"
    )


def test_a_value_made_twice():
    assert refusal(nodes_of(GRAPH, lambda nodes: nodes.append(nodes[-1]))) == snapshot(
        "graph step: mean (example.py:4) makes a value that exists already"
    )


def test_an_output_that_is_never_made():
    graph = attrs.evolve(GRAPH, outputs=(("mean", new_value(f32())),))

    assert refusal(graph) == snapshot("graph step returns `mean`, which it never makes")


def test_a_result_of_another_type():
    def change(nodes):
        i = place_of(GRAPH, "add")
        nodes[i] = attrs.evolve(nodes[i], results=(new_value(f32(Axis("prompt", 9))),))
        del nodes[i + 1 :]

    graph = nodes_of(attrs.evolve(GRAPH, outputs=()), change)

    assert refusal(graph) == snapshot(
        "graph step: add (example.py:7) has results that its type rule rejects"
    )


def test_an_argument_that_the_type_rule_rejects():
    def change(nodes):
        i = place_of(GRAPH, "mean")
        nodes[i] = attrs.evolve(nodes[i], args=(GRAPH.input("policy"),))

    assert refusal(nodes_of(GRAPH, change)) == snapshot(
        "graph step: mean (example.py:4): `x` must be number[...]; got model<policy>"
    )


def test_a_model_used_after_it_is_used_up():
    def change(nodes):
        node = next(node for node in nodes if node.op.name == "logprobs")
        results = tuple(new_value(value.type) for value in node.results)
        nodes.append(Node(node.op, (UPDATED.input("policy"), *node.args[1:]), results, node.loc))

    assert refusal(nodes_of(UPDATED, change)) == snapshot(
        "graph grpo: logprobs (grpo.py:17) uses a model that is used up"
    )


def test_a_model_used_up_and_read_by_one_node():
    node = UPDATED.nodes[place_of(UPDATED, "update")]

    def change(nodes):
        loss = node.op.loss
        extra = new_value(node.args[0].type)
        inputs = (*loss.inputs, (f"outer.{loss.captures()}", extra))
        op = attrs.evolve(node.op, loss=attrs.evolve(loss, inputs=inputs))
        nodes[place_of(UPDATED, "update")] = attrs.evolve(
            node, op=op, args=(*node.args, node.args[0])
        )

    assert refusal(nodes_of(UPDATED, change)) == snapshot(
        "graph grpo: update (grpo.py:23) uses up a model and reads it as well"
    )


def test_a_nested_graph_handed_another_type():
    def change(nodes):
        i = place_of(UPDATED, "update")
        nodes[i] = attrs.evolve(nodes[i], args=(*nodes[i].args[:-1], nodes[i].args[1]))

    assert refusal(nodes_of(UPDATED, change)) == snapshot(
        "graph grpo: update (grpo.py:23) hands region loss other types"
    )


def test_a_malformed_nested_graph():
    def change(nodes):
        i = place_of(UPDATED, "update")
        loss = nodes_of(nodes[i].op.loss, list.reverse)
        nodes[i] = attrs.evolve(nodes[i], op=attrs.evolve(nodes[i].op, loss=loss))

    assert refusal(nodes_of(UPDATED, change)) == snapshot(
        "graph loss: token_mean (grpo.py:23) uses a value before it is made"
    )


def test_an_empty_graph_is_valid():
    verify(Graph("empty", (), (), ()))
