"""From a run file to what runs, checked in the order of cost: models are loaded last."""

from typing import Any

import attrs
import torch

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.program import check_run
from flowrl.config.placement.cluster import cluster_of, on_gpu
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.reserves import share_of
from flowrl.config.placement.weights import How, syncs
from flowrl.config.run_file import RunFile
from flowrl.config.traced import trace_run
from flowrl.data.tokenizer import load_tokenizer
from flowrl.errors import DataError, EngineError, FlowrlError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ops.uses import uses_of
from flowrl.runtime.engine import Sampling
from flowrl.runtime.graph.reading import check_tokenizers
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2
from flowrl.runtime.role_setup import RoleSetup
from flowrl.runtime.training.schedule import TrainerOptions
from flowrl.stages import Lowered
from flowrl.train.reasoning_tasks import check_tasks


def lower(run: RunFile) -> Lowered:
    """Trace and lower the program of a run file, checking all that needs no file but those two.

    Raises:
        FlowrlError: the program, its hyperparameters, roles, pools, batch sizes or tasks are wrong.
    """
    traced = trace_run(run)
    read = simplify(traced.graph, Cluster())
    check_run(run, read, traced.program.inputs)
    check_tasks(run)
    cluster = cluster_of(run, read)
    lowered = traced.lower(cluster, {role: role_setup(run, read, role) for role in run.roles})
    _check_kernels(run, lowered)
    return attrs.evolve(lowered, models=_sharing(run, lowered))


def _check_kernels(run: RunFile, lowered: Lowered) -> None:
    """Refuse kernels of GPUs for a model that is run on a CPU."""
    for role in uses_of(lowered.graph):
        wanted, key = run.engines.role(role).train.attention, f"engines.{role}.train.attention"
        if wanted not in ("auto", "sdpa") and lowered.models[role].model.device == "cpu":
            raise EngineError(
                f'`{key}` = "{wanted}" is a GPU kernel, and `{role}` runs on a CPU',
                where=run.where(key),
                hint='give its pool `gpus`; "auto" takes the fastest kernel that is available',
            )


def _sharing(run: RunFile, lowered: Lowered) -> dict[str, RoleSetup]:
    """Return the roles with what shares weights set so.

    Where a trainer computes with an engine's bfloat16 weights, so do the models beside it that are
    compared with it.
    """
    placed = Placed.by_run_file(run, lowered.graph)
    shared = {role for role, sync in syncs(run, placed).items() if sync.how is How.ALIAS}
    narrow = any(lowered.models[role].model.dtype == "bfloat16" for role in shared)
    frozen = {role for role, its in uses_of(lowered.graph).items() if not its.learns and narrow}
    return {
        role: attrs.evolve(
            setup,
            shares=role in shared,
            model=attrs.evolve(setup.model, narrow="all" if role in frozen else "none"),
        )
        for role, setup in lowered.models.items()
    }


def role_setup(run: RunFile, graph: Graph, role: str) -> RoleSetup:
    """Return how a role of a program is run, as the run file says."""
    model, engines = run.roles[role], run.engines.role(role)
    generate, train = engines.generate, engines.train
    cluster = cluster_of(run, graph)
    local = run.model_folder(role)
    path = str(local) if local.exists() else model.path
    return RoleSetup(
        model=ModelSpec(
            path,
            model.head,
            model.dtype,
            _device(run, cluster, role, "train"),
            lora=_lora(run, role),
        ),
        generator=generate.engine,
        generator_options=_generator_options(run, graph, role),
        generator_device=_device(run, cluster, role, "generate"),
        sampling=Sampling(
            max_tokens=generate.max_tokens, min_tokens=generate.min_tokens, stop=generate.stop
        ),
        sequences_per_block=generate.together,
        trainer=train.engine,
        options=_trainer_options(run, role),
        fsdp=_fsdp(run, cluster, role) if train.shard == "fsdp2" else None,
    )


def _trainer_options(run: RunFile, role: str) -> TrainerOptions:
    """Return how a role is run forward and trained: most keys of its tables are options."""
    train = run.engines.role(role).train
    keys = attrs.asdict(run.optimizer.role(role)) | attrs.asdict(train)
    return TrainerOptions(
        **{name: keys[name] for name in attrs.fields_dict(TrainerOptions) if name in keys},
        total_steps=run.train.steps,
        offload_optimizer=train.offload == "optimizer",
    )


def _generator_options(run: RunFile, graph: Graph, role: str) -> dict[str, object]:
    """Return what the engine that samples from a role is started with."""
    table, share = run.engines.role(role).generate.vllm, share_of(run, graph, role)
    given = attrs.asdict(table) if table else {}
    return given if share is None else given | {"gpu_memory_utilization": share}


def _lora(run: RunFile, role: str) -> Lora | None:
    """Return a role's adapter."""
    table = run.roles[role].lora
    return Lora(table.rank, table.alpha, table.targets, run.train.seed) if table else None


def _fsdp(run: RunFile, cluster: Cluster, role: str) -> Fsdp2:
    """Return how a role's weights are divided: within replicas, if its layout has several."""
    layout = Layout.parse(cluster.layout_of(role, "train") or "1")
    train = run.engines.role(role).train
    return Fsdp2(train.reshard_after_forward, layout.dp, offload=train.offload == "all")


def _device(run: RunFile, cluster: Cluster, role: str, use: str) -> str:
    """Return where a use of a role lives: on the GPU if its pool has any that aren't emulated."""
    return "cuda" if on_gpu(run, cluster, role, use) else "cpu"


def check_gpus(run: RunFile, lowered: Lowered) -> None:
    """Refuse pools with GPUs for a run in this process, where torch finds none.

    Raises:
        EngineError: a model is placed on a GPU.
    """
    if torch.cuda.is_available():
        return
    for role, its in uses_of(lowered.graph).items():
        for use in its.kinds:
            if on_gpu(run, lowered.cluster, role, use):
                pool = lowered.cluster.pool_of(role, use)
                raise EngineError(
                    f"`{role}` is placed on a GPU of pool `{pool}`, but torch finds none here",
                    where=run.where(f"cluster.pools.{pool}.gpus"),
                    hint="give its pool no gpus, or install a torch and a driver for the GPU; "
                    "`cluster.num_gpus` emulates GPUs",
                )


def load_tokenizers(lowered: Lowered, run: RunFile | None = None) -> dict[str, Any]:
    """Return the tokenizer of each role that is read, one for those that share a folder.

    Args:
        lowered: the program.
        run: the run file that names the folders, if one does, for errors about them.

    Raises:
        DataError: a role's folder has none.
        EngineError: a role reads tokens that are not its own.
    """
    paths = {role: lowered.models[role].model.path for role in uses_of(lowered.graph)}
    made: dict[str, Any] = {}
    for role, path in paths.items():
        try:
            made[path] = made.get(path) or load_tokenizer(path)
        except DataError as error:
            raise of_model(role, error, run) from error
    tokenizers = {role: made[path] for role, path in paths.items()}
    check_tokenizers(lowered.graph, tokenizers)
    return tokenizers


def of_model(role: str, error: DataError, run: RunFile | None) -> FlowrlError:
    """Return what is wrong with a model's folder, with the key that names it."""
    if run is None:
        return error.told(f"`{role}`: {error.problem}", where=error.where)
    key = run.model_key(role)
    return error.told(f"`{key}`: {error.problem}", where=run.where(key), made=[error.where])
