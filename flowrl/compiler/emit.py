"""Turn a lowered graph into a plan: data that prints, is compared, and runs."""

from collections.abc import Iterable, Mapping
from typing import Any

from flowrl.compiler.cluster import Cluster
from flowrl.ir.action import Action
from flowrl.ir.graph import Graph
from flowrl.ir.plan import Plan, encode


def emit(
    graph: Graph,
    cluster: Cluster,
    sampling: Mapping[str, Mapping[str, Any]],
    *,
    machines: str = "",
    actions: tuple[Action, ...] = (),
    forecast: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
) -> Plan:
    """Return the plan of a lowered graph.

    Args:
        graph: lowered.
        cluster: that it was lowered for.
        sampling: what the run file says of sampling from each role.
        machines: that the pools were chosen for, if they were.
        actions: of `residency`, if the pools' layouts were chosen.
        forecast: `Forecast.as_data` of it.
        notes: what of the run file it has no use for.

    Requires: every value has a pool. Ensures: `plan.graph()` is the same graph, and
    `Plan.from_json(plan.to_json())` the same plan.
    """
    given = {role: dict(settings) for role, settings in sampling.items()}
    return Plan(
        graph.name,
        cluster.pools,
        given,
        encode(graph),
        machines,
        actions,
        dict(forecast or {}),
        tuple(notes),
    )
