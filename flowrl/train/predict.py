"""What a run is predicted to take, if its run file names the machines that it runs on."""

from collections.abc import Callable

import attrs

from flowrl.compiler.forecast import Forecast, forecast
from flowrl.compiler.planning import Planned
from flowrl.config.planned import plan_run
from flowrl.config.run_file import RunFile
from flowrl.errors import FlowrlError
from flowrl.ir.graph import Graph
from flowrl.ir.plan import Plan
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Transfer
from flowrl.ops.names import named_nodes
from flowrl.stages import Lowered


def planned_as(run: RunFile, lowered: Lowered, say: Callable[[str], None]) -> Planned | None:
    """Return the plan of a run, laid out as it runs; None, and a word of why, if there is none.

    Args:
        run: the run file; without `[cluster] machines` there is nothing to plan for.
        lowered: its program.
        say: is told why a run with machines is not planned: it runs all the same.
    """
    if run.cluster.machines is None:
        return None
    try:
        return plan_run(run, lowered.cluster)[1]
    except FlowrlError as error:
        say(f"what the run takes is not predicted: {error.problem}")
        return None


def plan_of(lowered: Lowered, planned: Planned | None) -> Plan:
    """Return the plan that runs, with what it is predicted to take."""
    if planned is None:
        return lowered.plan
    predicted = as_run(forecast(planned), planned.graph, lowered.graph).as_data()
    machines = str(planned.target.machines)
    return attrs.evolve(lowered.plan, machines=machines, forecast=predicted)


def as_run(predicted: Forecast, planned: Graph, graph: Graph) -> Forecast:
    """Return a forecast with the names of the graph that runs.

    A plan may have other pools than the run, so that other values move and ops are numbered
    otherwise; but the ops that run models are the same, in the same order. Edges are left out where
    other values move.

    Args:
        predicted: for the planned graph.
        planned: the planned graph.
        graph: the same program's, as it runs.
    """
    models = [name for name, node in named_nodes(graph) if isinstance(node.op, ModelOp)]
    tasks = [
        attrs.evolve(each, task=attrs.evolve(each.task, name=name))
        for each, name in zip(predicted.tasks, models, strict=True)
    ]
    edges = predicted.edges if _outline(planned) == _outline(graph) else ()
    return attrs.evolve(predicted, tasks=tuple(tasks), edges=edges)


def _outline(graph: Graph) -> list[tuple[str, str]]:
    """Return the ops of a graph; weights that move are `transfer` whether layouts are known."""
    return [
        (name, Transfer.__name__ if isinstance(node.op, Transfer) else node.op.name)
        for name, node in named_nodes(graph)
    ]
