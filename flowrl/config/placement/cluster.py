"""The pools that a run file is run on."""

from flowrl.compiler.cluster import OTHER_ROLES, Cluster, Pool
from flowrl.config.placement.bases import bases_of
from flowrl.config.placement.layouts import laid_out
from flowrl.config.placement.used import used
from flowrl.config.run_file import RunFile
from flowrl.config.tables.cluster import MAIN
from flowrl.ir.graph import Graph


def cluster_of(run: RunFile, graph: Graph) -> Cluster:
    """Return the pools that a run file is run on, with all layouts; see `laid_out`."""
    return laid_out(run, graph, written_cluster(run, graph))


def written_cluster(run: RunFile, graph: Graph) -> Cluster:
    """Return the pools of a run file as they stand there; one for everything if it has none.

    On Ray, what no pool claims of `data` and `reward` lives in a pool of its own, `data`; but a
    model that gives the reward of that name lives with the other models. A pool in which nothing
    lives of what the run uses isn't there.

    Args:
        run: the run file.
        graph: its program, after `simplify`.
    """
    claims = _claims(run)
    every = Cluster(tuple(Pool(name, roles=roles) for name, roles in claims.items()))
    living = {*used(run, graph), *((other, "") for other in OTHER_ROLES)}
    homes = {every.pool_of(*each) for each in living}
    pools, first = [], 0
    for name in (name for name in claims if name in homes):
        spec = run.cluster.pool(name)
        pools.append(Pool(name, spec.gpus, claims[name], spec.layouts, first, spec.residencies))
        first += spec.gpus
    return Cluster(tuple(pools), bases=bases_of(run))


def _claims(run: RunFile) -> dict[str, tuple[str, ...]]:
    """Return what each pool claims, and the pool `data` of what none does."""
    claims = {name: spec.roles for name, spec in run.cluster.pools.items()} or {MAIN: ()}
    claimed = {role for roles in claims.values() for role in roles}
    if run.cluster.executor == "ray" and (
        rest := set(OTHER_ROLES) - claimed - set(run.reward.models)
    ):
        claims["data"] = (*claims.get("data", ()), *sorted(rest))
    return claims


def on_gpu(run: RunFile, cluster: Cluster, role: str, use: str) -> bool:
    """Whether a use of a role lives on a GPU: its pool has some, and they aren't emulated."""
    return not run.cluster.emulates and cluster.gpus_of(role, use) > 0
