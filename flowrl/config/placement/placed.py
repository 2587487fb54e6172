"""A program where it runs."""

from collections.abc import Mapping

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.planning import Planned
from flowrl.compiler.shapes import ModelShape
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.placement.shapes import shape_of
from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph


@attrs.frozen
class Placed:
    """A lowered program where it runs: as a run file says, or as it is planned.

    Attributes:
        graph: lowered.
        cluster: its pools, with their layouts and residencies.
        workers: processes of each pool.
        gpus: the pools whose workers have GPUs.
        apart: whether pools and workers are processes of their own.
        shapes: of the models that the planner knows, by role.
    """

    graph: Graph
    cluster: Cluster
    workers: Mapping[str, int]
    gpus: frozenset[str]
    apart: bool
    shapes: Mapping[str, ModelShape | None]

    @classmethod
    def by_run_file(cls, run: RunFile, graph: Graph) -> "Placed":
        """Return a lowered program where its run file says."""
        cluster, ray = cluster_of(run, graph), run.cluster.executor == "ray"
        specs = {pool.name: run.cluster.pool(pool.name) for pool in cluster.pools}
        workers = {name: spec.workers if ray else 1 for name, spec in specs.items()}
        real = not run.cluster.emulates
        gpus = frozenset(pool.name for pool in cluster.pools if pool.gpus and real)
        shapes = {role: shape_of(run, role) for role in run.roles}
        return cls(graph, cluster, workers, gpus, ray, shapes)

    @classmethod
    def by_plan(cls, plan: Planned) -> "Placed":
        """Return a program where it is planned: a worker a GPU."""
        workers = {pool.name: max(1, pool.gpus) for pool in plan.cluster.pools}
        gpus = frozenset(pool.name for pool in plan.cluster.pools if pool.gpus)
        return cls(plan.graph, plan.cluster, workers, gpus, True, plan.target.shapes)
