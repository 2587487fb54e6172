"""What a run file says becomes of weights while others work, held against its program."""

from collections.abc import Mapping

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.search.constraints import unbrought
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.tasks import Seat
from flowrl.config.placement.lending import apart, unlent
from flowrl.config.placement.used import evaluated_role
from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.plan import names_of_use
from flowrl.ops.uses import uses_of


def check_residencies(run: RunFile, graph: Graph, cluster: Cluster) -> None:
    """Check that weights which are let go come from somewhere again.

    Raises:
        RunFileError: no other use of the model trains them.
    """
    used = uses_of(graph)
    trained = {role for role, its in used.items() if "train" in its.kinds}
    for role, its in used.items():
        for use in sorted(its.kinds):
            if error := unbrought(Seat(role, use), cluster.residency_of(role, use), trained):
                raise error.told(where=_key(run, cluster.pool_of(role, use), role, use))


def check_aliases(
    run: RunFile, graph: Graph, cluster: Cluster, shapes: Mapping[str, ModelShape | None]
) -> None:
    """Check that weights which are to be those that train can be, wherever a plan puts them.

    Args:
        run: the run file.
        graph: its program.
        cluster: its pools.
        shapes: of its models that the planner knows, by role.

    Raises:
        RunFileError: an engine can't lend them, or doesn't sample where and as they are trained.
    """
    for role, its in uses_of(graph).items():
        if not its.generates or cluster.residency_of(role, "generate") != "alias":
            continue
        if why := unlent(run, graph, role, shapes[role]) or apart(cluster, role):
            raise RunFileError(
                f"`{role}.generate` can't have the residency `alias`: {why}",
                where=_key(run, cluster.pool_of(role, "generate"), role, "generate"),
                hint="leave it out, and `flowrl plan` chooses one",
            )
    role = evaluated_role(run, graph)
    if role and cluster.residency_of(role, "generate") == "alias":
        raise RunFileError(
            f"`{role}.generate` can't have the residency `alias`: only evaluations sample from it, "
            "and their engine has weights of its own",
            where=_key(run, cluster.pool_of(role, "generate"), role, "generate"),
            hint="leave it out, or let it be `offload` or `drop`",
        )


def _key(run: RunFile, pool: str, role: str, use: str) -> str:
    given = run.cluster.pools[pool].residencies
    name = next(name for name in names_of_use(role, use) if name in given)
    return run.source.where(("cluster", "pools", pool, "residencies", name))
