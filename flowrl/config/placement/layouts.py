"""How the models of a run lie over the workers of its pools, where its run file is silent."""

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.config.placement.shapes import shape_of
from flowrl.config.placement.used import used
from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ir.plan import Pool
from flowrl.ops.uses import USES


def laid_out(run: RunFile, graph: Graph, cluster: Cluster) -> Cluster:
    """Return the pools with a layout for each use of a run's models, if any is laid out at all.

    What is divided by `shard` lies over all workers of its pool, and beside it every model is
    whole on each; elsewhere a model is trained on one worker. All workers of a pool sample, with
    whole weights. Where the planner doesn't know what is divided, it can't say how weights would
    move: without layouts they go whole. Adapters have none: they go as they are, to whole models.
    """
    if run.cluster.executor != "ray" or not run.cluster.pools:
        return cluster
    read = {role for role, _ in used(run, graph)}
    roles = [role for role in run.roles if role in read]
    split = {role for role in run.engines.divided if role in roles}
    stated = any(use.partition(".")[0] in roles for pool in cluster.pools for use in pool.layouts)
    if not stated and not (split and all(shape_of(run, role) for role in split)):
        return cluster
    homes = {role: cluster.pool_of(role, "train") for role in roles}
    ranked = {homes[role] for role in split}

    def layout(role: str, use: str) -> str:
        workers = run.cluster.pool(cluster.pool_of(role, use)).workers
        if use != "generate" and (given := cluster.layout_of(role, use)):
            return given
        if role in split and use != "generate":
            return str(Layout(fsdp=workers))
        whole = use == "generate" or cluster.pool_of(role, use) in ranked
        return str(Layout(dp=workers if whole else 1))

    def laid(pool: Pool) -> Pool:
        here = (
            (role, use)
            for role in roles
            if role not in run.adapted
            for use in USES
            if cluster.pool_of(role, use) == pool.name and f"{role}.{use}" not in pool.layouts
        )
        made = {f"{role}.{use}": layout(role, use) for role, use in here}
        return attrs.evolve(pool, layouts={**pool.layouts, **made})

    return attrs.evolve(cluster, pools=tuple(map(laid, cluster.pools)))
