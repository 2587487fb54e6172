"""Ops are called what the printed graph calls them."""

import pytest

from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.target import Lengths, Workload
from flowrl.compiler.tasks import moves_of, tasks_of
from flowrl.ir.printer import text
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Transfer
from flowrl.ops.names import named_nodes
from programs.dapo import dapo
from programs.grpo import grpo
from programs.ppo import ppo
from tests.graphs import CLUSTERS

WORKLOAD = Workload(64, Lengths.of(100), Lengths.of(300))


def graph_of(program, **hyperparameters):
    return compile_graph(program.trace(hyperparameters).graph, CLUSTERS[1])


@pytest.mark.parametrize("program", [grpo, ppo, dapo])
def test_what_plans_speak_of_has_the_same_names(program):
    graph = graph_of(program)

    named = list(named_nodes(graph))
    models = [name for name, node in named if isinstance(node.op, ModelOp)]
    moved = [name for name, node in named if isinstance(node.op, Transfer)]

    assert models == [task.name for task in tasks_of(graph, WORKLOAD)]
    assert moved == [move.name for move in moves_of(graph, WORKLOAD)]


def test_each_op_stands_under_its_name_in_the_printed_graph():
    graph = graph_of(grpo)
    lines = [line.strip() for line in text(graph).splitlines()]

    found = {name: node.op.name for name, node in named_nodes(graph)}

    for name, op in found.items():
        assert any(line.startswith((f"{name}:", f"{name} =")) and op in line for line in lines)


def test_the_ops_of_a_loss_and_numbers_of_the_program_have_none():
    graph = graph_of(grpo, kl_coef=0.5)

    ops = [node.op.name for _, node in named_nodes(graph)]

    assert "update" in ops
    assert not {"constant", "clipped_surrogate", "token_mean"} & set(ops)
