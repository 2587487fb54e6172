"""From a program and a target to pools, layouts and the lowered graph."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from flowrl.compiler.bases import share_bases
from flowrl.compiler.cluster import OTHER_ROLES, Cluster
from flowrl.compiler.evaluation import Evaluating
from flowrl.compiler.losses import split_losses
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.search import Constraints, Found, ModelCosts, search
from flowrl.compiler.simplify import simplify
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Seat, Task, seats_of, tasks_of
from flowrl.ir.graph import Graph
from flowrl.ir.plan import Pool
from flowrl.ops.uses import over_bases

Decided = Callable[[tuple[Seat, ...]], Constraints]
"""What the user has decided about these seats."""

NONE: Mapping[str, str] = MappingProxyType({})


@attrs.frozen(eq=False)
class Planned:
    """A program with a place for everything.

    Attributes:
        target: what it was planned for.
        tasks: of a step, named as in the lowered graph.
        found: the placement, with its predicted seconds.
        cluster: the same as pools.
        graph: lowered for them.
        evaluation: of an engine that the step doesn't use, if there is one; pools have it too.
    """

    target: Target
    tasks: tuple[Task, ...]
    found: Found
    cluster: Cluster
    graph: Graph
    evaluation: Evaluating | None = None

    @property
    def costs(self) -> ModelCosts:
        """What the target predicts for its tasks."""
        return ModelCosts(self.target, self.tasks)


def plan_step(
    graph: Graph,
    target: Target,
    decided: Decided,
    homes: Mapping[str, str] = NONE,
    pools: Cluster | None = None,
) -> Planned:
    """Choose pools, layouts and residencies for a program, and lower it for them.

    Args:
        graph: the program's, as traced.
        target: machines, models, work and speeds.
        decided: gives the user's constraints.
        homes: the pools that the user gives to `data` and `reward`; without one, either lives in
            the pool `data`.
        pools: those that the user gives, and the models that are bases of adapters: where a base is
            read in the pool that trains the adapter, it needs no place of its own.

    Raises:
        ProgramError: nothing fits; it is itemised, with the cheapest fix.
        RunFileError: what is decided allows no placement.
    """
    shared = share_bases(simplify(graph, Cluster()), pools or Cluster())
    tasks = tasks_of(split_losses(shared, Cluster()), target.workload)
    found = search(tasks, target, decided(seats_of(tasks)))
    cluster = placed(found, homes, over_bases(shared))
    lowered = compile_graph(graph, cluster)
    return Planned(target, tasks_of(lowered, target.workload), found, cluster, lowered)


def beside(planned: Planned, evaluation: Evaluating) -> Planned:
    """Return a plan whose pools have the engine of an evaluation too."""
    name, its = str(evaluation.seated.seat), evaluation.seated
    pools = {pool.name: pool for pool in planned.cluster.pools}
    pool = pools.get(evaluation.pool, Pool(evaluation.pool))
    pools[pool.name] = attrs.evolve(
        pool,
        gpus=len(its.ranks),
        first=its.ranks[0],
        roles=(*pool.roles, name),
        layouts={**pool.layouts, name: str(its.layout)},
        residencies={**pool.residencies, name: evaluation.asked.residency},
    )
    cluster = attrs.evolve(planned.cluster, pools=tuple(pools.values()))
    return attrs.evolve(planned, cluster=cluster, evaluation=evaluation)


def placed(
    found: Found, homes: Mapping[str, str] = NONE, bases: Mapping[str, str] = NONE
) -> Cluster:
    """Return a placement as pools; data and rewards may have pools of their own, without GPUs.

    Args:
        found: the placement.
        homes: the pools of data and rewards.
        bases: the role with an adapter on it, for each model that is read where that is trained.
    """
    others: dict[str, list[str]] = {}
    for role in OTHER_ROLES:
        others.setdefault(homes.get(role, "data"), []).append(role)
    for base, role in bases.items():
        others.setdefault(found.seats[Seat(role, "train")].pool, []).append(base)
    pools = [
        Pool(
            pool.name,
            len(pool.ranks),
            (*map(str, pool.seats), *others.pop(pool.name, ())),
            {str(seat): str(found.seats[seat].layout) for seat in pool.seats},
            pool.ranks[0],
            {str(seat): found.seats[seat].residency for seat in pool.seats},
        )
        for pool in found.pools
    ]
    rest = (Pool(name, 0, tuple(roles)) for name, roles in others.items())
    return Cluster((*pools, *rest), bases={base: (role,) for base, role in bases.items()})
