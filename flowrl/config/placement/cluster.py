"""The pools that a run file is run on."""

from flowrl.compiler.cluster import OTHER_ROLES, Cluster, Pool
from flowrl.config.placement.bases import bases_of
from flowrl.config.placement.layouts import laid_out
from flowrl.config.run_file import RunFile
from flowrl.config.tables.cluster import MAIN


def cluster_of(run: RunFile) -> Cluster:
    """Return the pools that a run file is run on, with all layouts; see `laid_out`."""
    return laid_out(run, written_cluster(run))


def written_cluster(run: RunFile) -> Cluster:
    """Return the pools of a run file as they stand there; one for everything if it has none.

    On Ray, what no pool claims of `data` and `reward` lives in a pool of its own, `data`; but a
    model that gives the reward of that name lives with the other models.
    """
    claims = {name: spec.roles for name, spec in run.cluster.pools.items()} or {MAIN: ()}
    claimed = {role for roles in claims.values() for role in roles}
    if run.cluster.executor == "ray" and (
        rest := set(OTHER_ROLES) - claimed - set(run.reward.models)
    ):
        claims["data"] = (*claims.get("data", ()), *sorted(rest))
    pools, first = [], 0
    for name, roles in claims.items():
        spec = run.cluster.pool(name)
        pools.append(Pool(name, spec.gpus, roles, spec.layouts, first, spec.residencies))
        first += spec.gpus
    return Cluster(tuple(pools), bases=bases_of(run))


def on_gpu(run: RunFile, cluster: Cluster, role: str, use: str) -> bool:
    """Whether a use of a role lives on a GPU: its pool has some, and they aren't emulated."""
    return not run.cluster.emulates and cluster.gpus_of(role, use) > 0
