"""The GPU memory that engines reserve which sample: how much of it."""

from flowrl.compiler.hardware import Machines
from flowrl.compiler.target import Reserve
from flowrl.config.placement.cluster import written_cluster
from flowrl.config.placement.used import evaluated_role
from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph
from flowrl.ops.uses import uses_of

GIB = 2**30


def share_of(run: RunFile, graph: Graph, role: str) -> float | None:
    """Return the share of each GPU that the engine has which samples from a role.

    Where the run file is silent, that is more if no other use of any model lives in its pool. All
    that runs in one process is in one pool.

    Args:
        run: the run file.
        graph: the program that samples from it.
        role: whose engine.

    Returns:
        the share; None of an engine that takes what it needs.
    """
    generate = run.engines.role(role).generate
    reserves = generate.facts.reserves
    if reserves is None:
        return None
    if generate.vllm and generate.vllm.gpu_memory_utilization:
        return generate.vllm.gpu_memory_utilization
    alone, beside = reserves
    return alone if _alone(run, graph, role) else beside


def _alone(run: RunFile, graph: Graph, role: str) -> bool:
    cluster, own = written_cluster(run, graph), (role, "generate")
    uses = {(name, use) for name, its in uses_of(graph).items() for use in its.kinds}
    if run.cluster.executor == "local":
        return uses <= {own}
    here = cluster.pool_of(*own)
    return all(cluster.pool_of(*other) != here for other in uses - {own})


def reserve_of(run: RunFile, graph: Graph, role: str) -> Reserve | None:
    """Return what a plan takes the engine to reserve which samples from a role, if it does."""
    share = share_of(run, graph, role)
    if share is None:
        return None
    generate = run.engines.role(role).generate
    facts, gib = generate.facts, generate.vllm.kv_cache_gib if generate.vllm else None
    machines = Machines.parse(run.cluster.machines or "")
    if gib is None and all(node.gpu.name == "CPU" for node in machines.nodes):
        gib = facts.cpu_cache_gib
    return Reserve(facts.title, share, None if gib is None else int(gib * GIB))


def evaluates(run: RunFile, graph: Graph, role: str) -> bool:
    """Whether a role is sampled from for evaluations alone, by an engine that stays at its trainer.

    Args:
        run: the run file.
        graph: the program that trains it.
        role: whose engine.
    """
    if role != evaluated_role(run, graph):
        return False
    if run.cluster.executor == "local":
        return True
    cluster = written_cluster(run, graph)
    together = cluster.pool_of(role, "generate") == cluster.pool_of(role, "train")
    return together and cluster.residency_of(role, "generate") not in ("offload", "drop")
