"""How the newest weights of a role come to the engine that samples from it."""

from collections.abc import Collection, Iterator
from enum import StrEnum

import attrs

from flowrl.config.placement.evaluation import evaluation_graph
from flowrl.config.placement.lending import parted, unshared
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.used import evaluated_role
from flowrl.config.run_file import RunFile
from flowrl.config.traced import POLICY
from flowrl.ir.graph import Graph
from flowrl.ir.types import ModelType
from flowrl.ops.move import Reshard, Transfer
from flowrl.ops.uses import Uses, uses_of


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
    How.COPY: "`{role}`: weights are copied into its generator: {why}",
    How.RESHARD: "`{role}`: weights are resharded into its generator: {why}",
    How.TRANSFER: "`{role}`: weights are transferred to its generator: {why}",
}


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
    moved = dict(_moved(placed.graph, run.adapted)) if placed.apart else {}

    def sync(role: str, its: Uses) -> Sync:
        if not its.learns:
            return Sync(How.FIXED)
        if role in moved:
            return moved[role]
        why = unshared(run, placed, role)
        return Sync(How.COPY, why) if why else Sync(How.ALIAS)

    found = {role: sync(role, its) for role, its in uses.items()}
    if role := evaluated_role(run, placed.graph):
        found[role] = _evaluation_sync(run, placed, role)
    return found


def _evaluation_sync(run: RunFile, placed: Placed, role: str) -> Sync:
    """Return how weights come to an engine that only evaluations use: it lends none."""
    why = "only evaluations sample from it"
    if placed.apart:
        graph = evaluation_graph(run, placed.graph, placed.cluster)
        adapters = [POLICY] if role in run.adapted else []
        for _, sync in _moved(graph, adapters):
            return attrs.evolve(sync, why=f"{sync.why}; {why}")
    return Sync(How.COPY, why)


def _moved(graph: Graph, adapters: Collection[str]) -> Iterator[tuple[str, Sync]]:
    """Yield the roles whose weights go to another pool or layout; adapters go whole."""
    for node in graph.walk():
        if not isinstance(node.op, Transfer) or not isinstance(node.args[0].type, ModelType):
            continue
        model, op = node.args[0].type, node.op
        how, why = How.TRANSFER, parted(op.src, op.dst)
        if model.role in adapters and op.src == op.dst:
            continue
        if isinstance(op, Reshard) and model.role not in adapters:
            how = How.RESHARD
            if op.src == op.dst:
                why = f"it trains as `{model.layout or 1}` and samples as `{op.layout}`"
        yield model.role, Sync(how, why)
