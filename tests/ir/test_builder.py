"""Graphs are made node by node, checked as they grow, and captured values become inputs."""

import pytest
from inline_snapshot import snapshot

from flowrl import ops
from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder, Rewriter
from flowrl.ir.printer import text
from flowrl.ir.trace import building, trace_region
from flowrl.ir.types import f32
from programs.ppo import ppo

HERE = Location("builder.py", 1)


def test_axes_of_one_name_are_numbered_through_nested_graphs():
    outer = GraphBuilder("outer")
    inner = GraphBuilder("inner", outer)

    axes = [builder.axis("token", "generate", HERE) for builder in (outer, inner, outer)]

    assert [str(axis) for axis in axes] == ["token", "token'2", "token'3"]


def test_a_value_that_a_nested_graph_captures_is_one_input_of_it():
    outer = GraphBuilder("outer")
    x, y = outer.input("x", f32()), outer.input("y", f32())
    with building(outer):
        graph, captured = trace_region("inner", lambda inner: [("out", x * y + x)], outer)

    assert [id(value) for value in captured] == [id(x), id(y)]
    assert text(graph, locations=False) == snapshot("""\
graph inner
  input %outer.0: f32[]
  input %outer.1: f32[]
  %0: f32[] = mul(%outer.0, %outer.1)
  %1: f32[] = add(%0, %outer.0)
  return out=%1\
""")


def test_a_nested_graph_may_return_an_outer_value():
    outer = GraphBuilder("outer")
    x = outer.input("x", f32())
    with building(outer):
        graph, captured = trace_region("inner", lambda inner: [("out", x)], outer)

    assert [id(value) for value in captured] == [id(x)]
    assert graph.outputs[0][1] is graph.inputs[0][1]


def test_a_value_is_captured_through_every_graph_between():
    outer = GraphBuilder("outer")
    x = outer.input("x", f32())

    def middle(builder):
        _, captured = trace_region("inner", lambda inner: [("out", -x)], builder)
        assert [value.type for value in captured] == [f32()]
        return [("out", captured[0])]

    with building(outer):
        graph, captured = trace_region("middle", middle, outer)

    assert [id(value) for value in captured] == [id(x)]
    assert [name for name, _ in graph.inputs] == ["outer.0"]


def test_a_failed_trace_leaves_nothing_behind():
    builder = GraphBuilder("failed")
    x = builder.input("x", f32())
    with pytest.raises(ProgramError), building(builder):
        bool(x)

    with pytest.raises(ProgramError, match="outside of a program"):
        ops.maximum(x, 1.0)


def test_a_rewriter_that_copies_every_node_gives_the_same_graph():
    graph = ppo.trace().graph
    out = Rewriter(graph)
    for node in graph.nodes:
        out.copy(node)

    assert text(out.done()) == text(graph)
