"""How the newest weights of a role come to the engine that samples from it."""

from enum import StrEnum

import attrs

from flowrl.config.check import cluster_of
from flowrl.config.run_file import RunFile
from flowrl.config.schema import PoolSpec
from flowrl.ir.graph import Graph
from flowrl.ir.types import ModelType
from flowrl.ops.model import Generate
from flowrl.ops.move import Reshard, Transfer
from flowrl.ops.uses import Uses, uses_of

LENDING = ("hf", "vllm")
"""Engines that let a trainer compute with their own tensors."""


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


def sync_sentences(run: RunFile, graph: Graph) -> list[str]:
    """Return how weights come to each engine that samples, a sentence each."""
    found = syncs(run, graph).items()
    return [SAID[sync.how].format(role=role, why=sync.why) for role, sync in found]


def syncs(run: RunFile, graph: Graph) -> dict[str, Sync]:
    """Return how weights come to each engine that samples.

    Args:
        run: the run file.
        graph: its lowered program.
    """
    uses = {role: its for role, its in uses_of(graph).items() if its.generates}
    moved: dict[str, How] = {}
    for node in graph.walk() if run.cluster.executor == "ray" else ():
        if isinstance(node.op, Transfer) and isinstance(node.args[0].type, ModelType):
            how = How.RESHARD if isinstance(node.op, Reshard) else How.TRANSFER
            moved[node.args[0].type.role] = how
    sampled = _copies_sampled(graph)

    def sync(role: str, its: Uses) -> Sync:
        if not its.learns:
            return Sync(How.FIXED)
        if role in moved:
            return Sync(moved[role], "it samples in another pool or layout than it trains in")
        why = "" if its.trains else "it is an average"
        why = why or ("a copy of it may be sampled from too" if role in sampled else "")
        why = why or _unlent(run, role)
        return Sync(How.COPY, why) if why else Sync(How.ALIAS)

    return {role: sync(role, its) for role, its in uses.items()}


def _copies_sampled(graph: Graph) -> set[str]:
    """Return the roles of which snapshots are sampled from."""
    models = [node.args[0].type for node in graph.walk() if isinstance(node.op, Generate)]
    return {of.role for of in models if isinstance(of, ModelType) and of.snapshot}


def _unlent(run: RunFile, role: str) -> str:
    """Return why an engine's tensors can't be those that train; "" if they can."""
    cluster, engine = cluster_of(run), run.engines.role(role).generate.engine
    pool = cluster.pool_of(role, "generate")
    spec = run.cluster.pools.get(pool, PoolSpec())
    kept = spec.residencies.get(f"{role}.generate", spec.residencies.get(role, "alias"))
    if run.roles[role].lora:
        return "an adapter trains, and it alone is sent"
    if spec.workers > 1 and run.cluster.executor == "ray":
        return f"pool `{pool}` has {spec.workers} workers"
    if engine not in LENDING:
        return f"the engine `{engine}` lends none"
    if engine == "vllm" and not (spec.gpus and run.cluster.num_gpus is None):
        return "vLLM packs its weights for the CPU"
    if kept != "alias":
        return f"pool `{pool}` has it `{kept}`"
    if (trains := cluster.residency_of(role, "train")) not in ("", "resident"):
        return f"its pool has `{role}.train` `{trains}`"
    return ""
