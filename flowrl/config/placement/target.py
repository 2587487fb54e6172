"""What a run file says to the planner: machines, models, lengths, and what is decided already."""

from collections.abc import Collection
from typing import Any, cast

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.hardware import Machines
from flowrl.compiler.search import Constraints
from flowrl.compiler.shapes import AdapterShape, ModelShape
from flowrl.compiler.target import Lengths, Profile, Reserve, Settings, Target, Workload
from flowrl.compiler.tasks import Seat
from flowrl.config.placement.lending import unlent
from flowrl.config.placement.reserves import evaluates, reserve_of
from flowrl.config.placement.shapes import shape_at
from flowrl.config.placement.widths import narrow_trainer, widths
from flowrl.config.run_file import RunFile
from flowrl.errors import EngineError, RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ops.uses import Uses, uses_of

DIVIDED = {"train": ("fsdp", "dp"), "score": ("fsdp", "dp")}
"""The axes over which the trainer's engine divides weights."""

WHOLE = ("dp",)
"""The axes over which what samples from an adapter divides: it goes beside whole layers."""


def target_of(run: RunFile, graph: Graph) -> Target:
    """Return what a run file plans for.

    Args:
        run: the run file.
        graph: its program, after `simplify`: models that nothing reads are left out.

    Raises:
        RunFileError: it names no machines, or lengths that are none.
        EngineError: a model's sizes, or those of its adapter, aren't known.
        DataError: the profile can't be read.
    """
    if run.cluster.machines is None:
        raise RunFileError(
            "there are no machines to plan for",
            where=f"  {run.source.file.name}",
            hint='name them: `[cluster] machines = "8xH100"`, or `--cluster 8xH100`; "1xCPU" is '
            "the CPU",
        )
    uses = uses_of(graph)
    shapes = {role: _shape(run, its) for role, its in uses.items()}
    lending = {role for role, shape in shapes.items() if not unlent(run, graph, role, shape)}
    return Target(
        Machines.parse(run.cluster.machines),
        shapes,
        _workload(run, graph, lending),
        Profile.load(run.resolve(run.workload.profile)) if run.workload.profile else Profile(),
        {role: _adapter(run, role, shapes[role]) for role in run.adapted if role in shapes},
    )


def constraints_of(run: RunFile, seats: tuple[Seat, ...], cluster: Cluster) -> Constraints:
    """Return what pools decide: who lives where, on how many GPUs, laid out how.

    And what becomes of it while others work. A pool of no GPUs leaves their number open; one that
    the step doesn't use decides nothing. Without pools, all is open but residencies, what
    `shard = "fsdp2"` divides, and what has an adapter.

    Args:
        run: the run file.
        seats: of the step.
        cluster: the pools.
    """
    sharded = {f"{role}.{use}": ("fsdp",) for role in run.engines.divided for use in DIVIDED}
    axes = {**DIVIDED, **sharded, **{f"{role}.generate": WHOLE for role in run.adapted}}
    seats = tuple(seat for seat in seats if not _at_trainer(seat, seats, cluster))
    residencies = residencies_of(seats, cluster)
    if not run.cluster.pools:
        return Constraints(axes=axes, residencies=residencies)
    layouts = {seat: cluster.layout_of(seat.role, seat.use) for seat in seats}
    pools = {seat: cluster.pool_of(seat.role, seat.use) for seat in seats}
    return Constraints(
        pools=pools,
        gpus={p.name: p.gpus for p in cluster.pools if p.gpus and p.name in pools.values()},
        layouts={seat: Layout.parse(text) for seat, text in layouts.items() if text},
        axes=axes,
        residencies=residencies,
    )


def _at_trainer(seat: Seat, seats: tuple[Seat, ...], cluster: Cluster) -> bool:
    """Whether a seat scores with the engine that trains its model, so needs no place of its own."""
    trains = Seat(seat.role, "train")
    together = cluster.pool_of(seat.role, seat.use) == cluster.pool_of(seat.role, "train")
    return seat.use == "score" and trains in seats and together


def residencies_of(seats: tuple[Seat, ...], cluster: Cluster) -> dict[Seat, Residency]:
    """Return what pools say becomes of seats while others work."""
    given = {seat: cluster.residency_of(seat.role, seat.use) for seat in seats}
    return {seat: cast(Residency, kind) for seat, kind in given.items() if kind}


def _shape(run: RunFile, uses: Uses) -> ModelShape:
    table = run.roles[uses.role]
    head, folder = table.head or uses.head, run.model_folder(uses.role)
    try:
        return shape_at(str(folder) if folder.exists() else table.path, head)
    except EngineError as error:
        raise error.told(where=run.where(run.model_key(uses.role))) from None


def _adapter(run: RunFile, role: str, shape: ModelShape) -> AdapterShape:
    lora = run.models[role].lora
    assert lora is not None, "the role is adapted"
    try:
        return AdapterShape.beside(shape, lora.rank, lora.targets)
    except EngineError as error:
        raise error.told(where=run.where(f"models.{role}.lora")) from None


def _workload(run: RunFile, graph: Graph, lending: Collection[str]) -> Workload:
    table, uses = run.workload, uses_of(graph)
    narrow = narrow_trainer(run, uses, lending)
    generating = [role for role, its in uses.items() if its.generates]
    most = max((run.engines.role(role).generate.max_tokens for role in generating), default=512)
    response: Any = table.response_tokens or {"mean": most / 2, "max": most}
    return Workload(
        run.train.prompts_per_step,
        Lengths.of(table.prompt_tokens, run.where("workload.prompt_tokens")),
        Lengths.of(response, run.where("workload.response_tokens")),
        table.rounds,
        {
            role: _settings(
                run,
                its,
                narrow,
                lends=role in lending,
                reserve=reserve_of(run, graph, role),
                evaluates=evaluates(run, graph, role),
            )
            for role, its in uses.items()
        },
    )


def _settings(
    run: RunFile, its: Uses, narrow: bool, *, lends: bool, reserve: Reserve | None, evaluates: bool
) -> Settings:
    engines, expected = run.engines.role(its.role), run.workload.role(its.role)
    train = engines.train
    return Settings(
        **widths(run, its, narrow=narrow),
        microbatch_tokens=train.tokens_per_microbatch,
        head_tokens=min(Settings().head_tokens, train.tokens_per_microbatch),
        checkpointing=train.checkpointing,
        offload=train.offload,
        offload_activations=train.offload_activations,
        compiled=train.compile,
        sequences=expected.sequences or engines.generate.together,
        kv_share=expected.kv_share,
        reserve=reserve,
        evaluates=evaluates,
        lends=lends,
    )
