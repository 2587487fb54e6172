"""How the newest weights of a role come to the engine that samples from it."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.planning import Planned
from flowrl.compiler.shapes import ModelShape
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.placement.layouts import shape_of
from flowrl.config.placement.lending import unlent
from flowrl.config.rules.adapters import adapted
from flowrl.config.run_file import RunFile
from flowrl.config.tables.schema import PoolSpec
from flowrl.ir.graph import Graph
from flowrl.ir.types import ModelType
from flowrl.ops.move import Reshard, Transfer
from flowrl.ops.uses import Uses, uses_of
from flowrl.runtime.known_engines import FACTS


class How(StrEnum):
    """Ways of weights, the cheapest first."""

    FIXED = "fixed"
    """They never change."""
    ALIAS = "alias"
    """The trainer computes with the engine's own tensors: nothing moves."""
    COPY = "copy"
    """Within a process, from the trainer's tensors into the engine's."""
    RESHARD = "reshard"
    """Point to point between workers, in the slices that are planned."""
    TRANSFER = "transfer"
    """Whole, through Ray's object store."""


@attrs.frozen
class Sync:
    """The way of a role's weights, and why it is not a cheaper one."""

    how: How
    why: str = ""


SAID = {
    How.FIXED: "`{role}` samples with weights that never change",
    How.ALIAS: "`{role}` samples with the tensors that train: no weights move",
    How.COPY: "`{role}`: weights are copied to sample with: {why}",
    How.RESHARD: "`{role}`: weights are resharded to sample with: {why}",
    How.TRANSFER: "`{role}`: weights are transferred to sample with: {why}",
}


@attrs.frozen
class Placed:
    """A program where it runs: as a run file says, or as it is planned.

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
        cluster, ray = cluster_of(run), run.cluster.executor == "ray"
        specs = {pool.name: run.cluster.pools.get(pool.name, PoolSpec()) for pool in cluster.pools}
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

    def unshared(self, run: RunFile, role: str) -> str:
        """Return why the tensors of the engine that samples don't train; "" if they do."""
        cluster, pool = self.cluster, self.cluster.pool_of(role, "generate")
        kept = cluster.residency_of(role, "generate") or "alias"
        trains = cluster.residency_of(role, "train") or "resident"
        if why := unlent(run, self.graph, role, self.shapes.get(role)):
            return why
        if self.workers[pool] > 1:
            return f"pool `{pool}` has {self.workers[pool]} workers"
        facts = FACTS[run.engines.role(role).generate.engine]
        if facts.repacks and pool not in self.gpus:
            return f"{facts.title} packs its weights for the CPU"
        if kept != "alias":
            return f"pool `{pool}` has it `{kept}`"
        if trains != "resident":
            return f"its pool has `{role}.train` `{trains}`"
        return ""


def sync_sentences(run: RunFile, placed: Placed) -> list[str]:
    """Return how weights come to each engine that samples, a sentence each."""
    found = syncs(run, placed).items()
    return [SAID[sync.how].format(role=role, why=sync.why) for role, sync in found]


def syncs(run: RunFile, placed: Placed) -> dict[str, Sync]:
    """Return how weights come to each engine that samples.

    Args:
        run: the run file.
        placed: its program, and where it runs.
    """
    uses = {role: its for role, its in uses_of(placed.graph).items() if its.generates}
    moved = dict(_moved(placed.graph, adapted(run))) if placed.apart else {}

    def sync(role: str, its: Uses) -> Sync:
        if not its.learns:
            return Sync(How.FIXED)
        if role in moved:
            return moved[role]
        why = placed.unshared(run, role)
        return Sync(How.COPY, why) if why else Sync(How.ALIAS)

    return {role: sync(role, its) for role, its in uses.items()}


def _moved(graph: Graph, adapters: Collection[str]) -> Iterator[tuple[str, Sync]]:
    """Yield the roles whose weights go to another pool or layout; adapters go whole."""
    for node in graph.walk():
        if not isinstance(node.op, Transfer) or not isinstance(node.args[0].type, ModelType):
            continue
        model, op = node.args[0].type, node.op
        how, why = How.TRANSFER, f"pool `{op.src}` trains it, pool `{op.dst}` samples from it"
        if model.role in adapters and op.src == op.dst:
            continue
        if isinstance(op, Reshard) and model.role not in adapters:
            how = How.RESHARD
            if op.src == op.dst:
                why = f"it trains as `{model.layout or 1}` and samples as `{op.layout}`"
        yield model.role, Sync(how, why)
