"""What a run is predicted to take, if its run file names the machines that it runs on."""

from collections.abc import Callable

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.forecast import Forecast, forecast
from flowrl.compiler.hardware import Machines
from flowrl.compiler.planning import Planned
from flowrl.config.placement.lending import apart
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.weights import How, syncs
from flowrl.config.planned import plan_run
from flowrl.config.run_file import RunFile
from flowrl.errors import FlowrlError, RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.plan import Plan
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Transfer
from flowrl.ops.names import named_nodes
from flowrl.ops.uses import uses_of
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
        return plan_as_run(run, lowered)
    except FlowrlError as error:
        say(f"what the run takes is not predicted: {error.problem}")
        return None


def plan_as_run(run: RunFile, lowered: Lowered) -> Planned:
    """Return the plan of a run, laid out as it runs, where weights stay that it doesn't let go of.

    Args:
        run: the run file, which names its machines.
        lowered: its program.

    Raises:
        FlowrlError: nothing fits so, or the run is on CPUs and its machines have GPUs.
    """
    planned = plan_run(run, _staying(run, lowered))[1]
    _check_gpus(run, lowered.cluster, planned.target.machines)
    return planned


def _check_gpus(run: RunFile, cluster: Cluster, machines: Machines) -> None:
    named = {node.gpu.name for node in machines.nodes}
    if named - {"CPU"} and not any(pool.gpus for pool in cluster.pools):
        raise RunFileError(
            f"no pool has GPUs, and `{run.cluster.machines}` has",
            where=run.where("cluster.machines"),
            hint='give pools `gpus`, or name "1xCPU"',
        )


def _staying(run: RunFile, lowered: Lowered) -> Cluster:
    """Return the pools of a run with what becomes of each use of a model; nothing is left open.

    What samples has the trainer's weights where both are shared. In one process nothing leaves.
    """
    cluster, on_ray = lowered.cluster, run.cluster.executor == "ray"
    ways = syncs(run, Placed.by_run_file(run, lowered.graph))
    stays: dict[str, dict[str, str]] = {pool.name: {} for pool in cluster.pools}
    for role, its in uses_of(lowered.graph).items():
        for use in sorted(its.kinds):
            shared = use == "generate" and ways[role].how is How.ALIAS and not apart(cluster, role)
            given = cluster.residency_of(role, use) if on_ray else ""
            kept = given or ("alias" if shared else "resident")
            stays[cluster.pool_of(role, use)][f"{role}.{use}"] = kept
    pools = (attrs.evolve(pool, residencies=stays[pool.name]) for pool in cluster.pools)
    return attrs.evolve(cluster, pools=tuple(pools))


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
