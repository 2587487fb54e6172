"""Keys of a run file that its program never reads."""

from collections.abc import Iterable, Iterator

from flowrl.config.placement.cluster import written_cluster
from flowrl.config.placement.used import evaluated_role, used
from flowrl.config.run_file import RunFile
from flowrl.config.toml.structure import KeyPath, dotted
from flowrl.ir.graph import Graph
from flowrl.ir.types import ModelType
from flowrl.ops.model import Generate, ModelOp, Score, Update
from flowrl.ops.uses import uses_of

ONE_PROCESS = '`cluster.executor` is "local", one process'
UNUSED = {
    "train": "the program doesn't update `{}`",
    "score": "the program doesn't run `{}` forward",
    "generate": "the program doesn't sample from `{}`",
}
"""What is said of a use that a model doesn't have."""
UNREAD = "the program never reads `{}`"


def inert_keys(run: RunFile, graph: Graph) -> list[str]:
    """Return a sentence for each table that changes nothing, with the line where it stands.

    Args:
        run: the run file.
        graph: the program's, simplified.
    """
    found = [*_adapters(run, graph), *_optimizers(run, graph), *_generators(run, graph)]
    found += [*_rewards(run, graph), *_offloads(run, graph), *_shards(run, graph)]
    found += [*_seats(run, graph), *_pools(run, graph)]
    return [*_unknown_models(run, graph), *_said(run, found), *_set_aside(run, graph)]


def unused(run: RunFile, graph: Graph) -> list[str]:
    """Return a sentence for each model that the program doesn't have, and for each idle pool."""
    return [
        *_unknown_models(run, graph),
        *_said(run, _pools(run, graph)),
        *_set_aside(run, graph),
    ]


def _unknown_models(run: RunFile, graph: Graph) -> Iterator[str]:
    known = {name for name, _ in graph.inputs}
    for role in run.models:
        if role not in known:
            why = f"`{graph.name}` has no such model ({_place(run, ('models', role))})"
            yield f"`{role}` is never read and never loaded: {why}."


def _said(run: RunFile, found: Iterable[tuple[KeyPath, str]]) -> Iterator[str]:
    for path, why in found:
        yield f"[{dotted(path)}] changes nothing: {why} ({_place(run, path)})."


def _adapters(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    read = _read(run, graph)
    for role in run.adapted:
        if role not in read:
            yield ("models", role, "lora"), UNREAD.format(role)


def _optimizers(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    trained = _roles(graph, Update)
    for role in run.optimizer.roles:
        if role not in trained:
            yield ("optimizer", role), f"the program doesn't update `{role}`"


def _generators(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    sampled = _roles(graph, Generate) | {evaluated_role(run, graph)}
    for role in run.engines.roles:
        if role not in sampled and "generate" in run.written["engines"][role]:
            yield ("engines", role, "generate"), f"the program doesn't sample from `{role}`"


def _rewards(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    scored = {name for n in graph.walk() if isinstance(n.op, Score) for name in n.op.functions}
    if run.eval is not None:
        scored |= {run.eval.reward or next(iter(run.reward.functions))}
    for name in run.reward.functions:
        if name not in scored:
            yield ("reward", name), "the program doesn't score by it"


def _offloads(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    trained = _roles(graph, Update)
    for role, table in run.engines.roles.items():
        if role not in trained and table.train.offload == "optimizer":
            yield ("engines", role, "train", "offload"), f"the program doesn't update `{role}`"


def _shards(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    read = _read(run, graph)
    for role in run.engines.divided:
        pool = run.cluster.home(role)
        if role not in read:
            why = UNREAD.format(role)
        elif run.cluster.executor == "local":
            why = ONE_PROCESS
        elif run.cluster.pool(pool).workers == 1:
            why = f"pool `{pool}` has one worker"
        else:
            continue
        yield ("engines", role, "train", "shard"), why
        if run.engines.role(role).train.offload == "all":
            yield ("engines", role, "train", "offload"), why


def _seats(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    """Yield layouts and residencies of uses that models don't have."""
    read = _read(run, graph)
    evaluated = {"generate"} if run.eval is not None else set()
    kinds = {role: its.kinds | evaluated for role, its in uses_of(graph).items()}
    for pool, spec in run.cluster.pools.items():
        for table, names in (("layouts", spec.layouts), ("residencies", spec.residencies)):
            for name in names:
                role, _, use = name.partition(".")
                served = {use, "score"} if use == "train" else {use}  # it scores as it trains
                if role not in read:
                    yield ("cluster", "pools", pool, table, name), UNREAD.format(role)
                elif use and not served & kinds.get(role, set()):
                    yield ("cluster", "pools", pool, table, name), UNUSED[use].format(role)


def _pools(run: RunFile, graph: Graph) -> Iterator[tuple[KeyPath, str]]:
    """Yield pools in which nothing lives, and pools of one process."""
    pools, cluster = run.cluster.pools, written_cluster(run, graph)
    placed = any(spec.gpus or spec.residencies for spec in pools.values())
    if run.cluster.executor == "local" and pools and not placed:  # on no GPU, sharing none
        yield ("cluster", "pools"), ONE_PROCESS
        return
    living = {pool.name for pool in cluster.pools}
    for pool in pools:
        if pool not in living:
            yield ("cluster", "pools", pool), "nothing that the program does lives there"


def _set_aside(run: RunFile, graph: Graph) -> Iterator[str]:
    """Yield a sentence for each pool whose GPUs Ray keeps for data and rewards alone."""
    cluster = written_cluster(run, graph)
    homes = {cluster.pool_of(*each) for each in used(run, graph)}
    for pool in cluster.pools if run.cluster.executor == "ray" else ():
        if pool.gpus and pool.name not in homes:
            path = ("cluster", "pools", pool.name, "gpus")
            why = f"no model that the program runs lives there ({_place(run, path)})"
            yield f"[{dotted(path)}] sets GPUs aside for data and rewards alone: {why}."


def _read(run: RunFile, graph: Graph) -> set[str]:
    """Return the roles that a run reads."""
    return {role for role, _ in used(run, graph)}


def _roles(graph: Graph, kind: type[ModelOp]) -> set[str]:
    """Return the roles whose model an op of this kind reads."""
    types = [n.args[0].type for n in graph.walk() if isinstance(n.op, kind)]
    return {type.role for type in types if isinstance(type, ModelType)}


def _place(run: RunFile, path: KeyPath) -> str:
    return run.source.where(path).partition("\n")[0].strip()
