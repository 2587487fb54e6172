"""A run on pools of Ray's workers: what runs where."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.config.placement.evaluation import evaluation_cluster
from flowrl.config.run_file import RunFile
from flowrl.config.tables.cluster import PoolSpec
from flowrl.config.tables.schema import EvalTable
from flowrl.config.traced import POLICY
from flowrl.errors import EngineError
from flowrl.ir.layout import Layout
from flowrl.ops.uses import tokenizing_role
from flowrl.runtime.pools.job import Job, Loan, ranked_pools
from flowrl.runtime.pools.pools import Pools, PoolSize, RaySpec, started
from flowrl.runtime.pools.ray_executor import RayExecutor
from flowrl.stages import Lowered
from flowrl.train.edges import edge_planner
from flowrl.train.evaluate import evaluation_tokenizers, lower_evaluation, seed_of
from flowrl.train.opening import EVALUATION, TRAINING, DataOpening, RewardOpening


@contextmanager
def pools_of(run: RunFile, cluster: Cluster) -> Iterator[Pools]:
    """Start the workers that `[cluster]` asks for.

    Raises:
        EngineError: Ray can't be used, or lacks what the pools take.
    """
    table = run.cluster
    specs = {pool.name: table.pool(pool.name) for pool in cluster.pools}
    sizes = tuple(_size(name, spec) for name, spec in specs.items())
    with ExitStack() as stack:
        try:
            asked = RaySpec(sizes, table.address, table.num_gpus, table.worker_output)
            pools = stack.enter_context(started(asked))
        except EngineError as error:
            key = "cluster.address" if table.address else "cluster.pools"
            raise error.told(where=run.where(key)) from error
        yield pools


def _size(name: str, spec: PoolSpec) -> PoolSize:
    layouts = map(Layout.parse, spec.layouts.values())
    together = max((layout.tp for layout in layouts), default=1)
    return PoolSize(name, spec.workers, spec.gpus, spec.cpus, together)


def described(cluster: Cluster, pools: Pools) -> Iterator[str]:
    """Yield a line a pool: what it claims, and its workers."""
    for pool in cluster.pools:
        claims = ", ".join(pool.roles) or "everything else"
        places = ", ".join(line.place for line in pools[pool.name])
        yield f"pool {pool.name}: {claims}; {places}"


def executors(
    run: RunFile, lowered: Lowered, tokenizers: Mapping[str, Any], pools: Pools
) -> tuple[RayExecutor, RayExecutor | None]:
    """Return the executor of the program, and that of `[eval]` if there is one.

    The second runs on the same workers, on the first one's model.
    """
    training = _training(run, lowered, tokenizers)
    if run.eval is None:
        return RayExecutor(training, pools), None
    evaluation = _evaluation(run, run.eval, lowered, training)
    training = attrs.evolve(training, ranked=evaluation.ranked)  # workers join once, for both
    return RayExecutor(training, pools), RayExecutor(evaluation, pools)


def _training(run: RunFile, lowered: Lowered, tokenizers: Mapping[str, Any]) -> Job:
    """Return the job of the program."""
    return Job(
        name=TRAINING,
        plan=lowered.plan,
        source=lowered.graph,
        inputs=lowered.traced.inputs,
        roles=lowered.models,
        tokenizers=tokenizers,
        data=DataOpening.of(run, lowered, tokenizers),
        rewards=RewardOpening.of(run),
        seed=run.train.seed,
        drop_failed=run.reward.drops_failed,
        threads=run.engines.threads,
        plan_edge=edge_planner(lowered.models, run.cluster.machines),
        ranked=ranked_pools(lowered.graph, lowered.models),
        rank_timeout=run.cluster.rank_timeout,
        check_every=run.cluster.check_weights_every,
    )


def _evaluation(run: RunFile, table: EvalTable, lowered: Lowered, training: Job) -> Job:
    """Return the job of `[eval]`, on a model of another job and on the same workers."""
    role = tokenizing_role(lowered.graph)
    cluster = evaluation_cluster(run, lowered.graph, lowered.cluster)
    scored = lower_evaluation(run, table, lowered.models[role], cluster)
    return attrs.evolve(
        training,
        name=EVALUATION,
        plan=scored.plan,
        source=scored.graph,
        inputs=scored.traced.inputs,
        roles=scored.models,
        tokenizers=evaluation_tokenizers(scored, training.tokenizers, role),
        data=DataOpening.held_out(run, training.tokenizers[role], role),
        plan_edge=edge_planner(scored.models, run.cluster.machines),
        ranked=training.ranked | ranked_pools(scored.graph, scored.models),
        seed=seed_of(run),
        loan=Loan(TRAINING, role, lowered.graph.input(role).pool, POLICY),
    )
