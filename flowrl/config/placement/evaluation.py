"""An engine that only evaluations use: where a run has it, and what it does there."""

from typing import Any, cast

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.evaluation import Evaluation, evaluating
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.planning import Planned, beside
from flowrl.compiler.target import Lengths, Workload
from flowrl.compiler.tasks import Seat, tasks_of
from flowrl.config.placement.cluster import written_cluster
from flowrl.config.placement.used import evaluated_role
from flowrl.config.run_file import RunFile
from flowrl.config.traced import POLICY, trace_evaluation
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ops.uses import tokenizing_role, uses_of


def evaluation_cluster(run: RunFile, graph: Graph, cluster: Cluster) -> Cluster:
    """Return the pools of a run for its evaluation, whose model lives where it does in the run."""
    role = tokenizing_role(graph)
    home = cluster.home_of(role, uses_of(graph)[role].kinds)
    return cluster.of_one(role, POLICY, home, run.reward.models)


def evaluation_graph(run: RunFile, graph: Graph, cluster: Cluster) -> Graph:
    """Return an evaluation, lowered for the pools of a run.

    Args:
        run: the run file, which has `[eval]`.
        graph: its program.
        cluster: its pools.
    """
    return compile_graph(trace_evaluation(run).graph, evaluation_cluster(run, graph, cluster))


def with_evaluation(run: RunFile, planned: Planned, pools: Cluster) -> Planned:
    """Return a plan with the engine that only evaluations use, if the run has one.

    Args:
        run: the run file.
        planned: of its step.
        pools: that are decided.

    Raises:
        RunFileError: too few GPUs are left for its pool.
    """
    role = evaluated_role(run, planned.graph)
    if not role or Seat(role, "train") not in planned.found.seats:
        return planned
    asked = _asked(run, planned, role, pools)
    placed = evaluating(asked, planned.found, planned.target, planned.tasks)
    if placed is None:
        raise RunFileError(
            f"pool `{asked.pool}`, which only evaluations use, has {asked.gpus} GPUs; the step "
            f"leaves fewer free on {planned.target.machines}",
            where=run.where(f"cluster.pools.{asked.pool}.gpus"),
            hint="give every pool its `gpus`, or name more machines",
        )
    return beside(planned, placed)


def _asked(run: RunFile, planned: Planned, role: str, pools: Cluster) -> Evaluation:
    """Return what the run file says of an evaluation; residencies are those of workers on Ray."""
    seat, workload = Seat(role, "generate"), _workload(run, role, planned.target.workload)
    written = written_cluster(run, planned.graph)
    tasks = tasks_of(trace_evaluation(run).graph, workload)
    pool, layout = pools.pool_of(role, "generate"), pools.layout_of(role, "generate")
    on_ray = run.cluster.executor == "ray"
    apart = on_ray and pool != pools.pool_of(role, "train")
    kept = written.residency_of(role, "generate") if on_ray else ""
    return Evaluation(
        seat,
        tuple(attrs.evolve(task, seat=seat) for task in tasks if task.seat.use == "generate"),
        workload,
        pool if apart else "",
        run.cluster.pool(pool).gpus if apart else 0,
        Layout.parse(layout) if layout else None,
        cast(Residency, kept) if kept in ("offload", "drop") else "resident",
    )


def _workload(run: RunFile, role: str, step: Workload) -> Workload:
    """Return the work of an evaluation; of as many prompts as a step's, if it isn't said."""
    table = run.eval
    assert table is not None, "there is an evaluation"
    most = table.max_tokens or run.engines.role(role).generate.max_tokens
    response: Any = run.workload.response_tokens or {"mean": most / 2, "max": most}
    return attrs.evolve(
        step,
        prompts=table.prompts or run.train.prompts_per_step,
        response_tokens=Lengths.of(response, run.where("workload.response_tokens")),
        rounds=1,
    )
