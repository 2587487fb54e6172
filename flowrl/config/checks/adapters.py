"""The adapters of a run file, held against what its program trains."""

from collections.abc import Iterator

from flowrl.compiler.cluster import Cluster
from flowrl.config.placement.cluster import on_gpu
from flowrl.config.run_file import RunFile
from flowrl.config.toml.structure import Problem
from flowrl.config.toml.types import as_toml
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ops.model import Ema
from flowrl.ops.uses import uses_of


def check_adapters(run: RunFile, graph: Graph, cluster: Cluster) -> None:
    """Refuse adapters of what the program reads and doesn't train, or averages with another model.

    And those of what has a layout, or of what an engine samples from on a GPU in a dtype that it
    has no kernels of adapters for.

    Raises:
        RunFileError: naming the key, and the line that averages.
    """
    uses = uses_of(graph)
    for role in (role for role in run.adapted if role in uses):
        where = run.where(f"models.{role}.lora")
        if not uses[role].trains:
            raise RunFileError(
                f"`{role}` has an adapter to train, but the program doesn't update it",
                where=where,
                hint="leave the table out",
            )
        means = (node for node in uses[role].nodes if isinstance(node.op, Ema))
        if node := next(means, None):
            raise RunFileError(
                f"`{role}` has an adapter, and averaged adapters are not the "
                "adapter of the averaged models",
                where=f"{where}\n{node.loc.excerpt()}",
                hint="train the whole model: leave the table out",
            )
        if problems := list(_layouts(run, role)):
            raise run.source.error(problems)
        if uses[role].generates and on_gpu(run, cluster, role, "generate"):
            _check_dtype(run, role)


def _layouts(run: RunFile, role: str) -> Iterator[Problem]:
    for pool, spec in run.cluster.pools.items():
        for use in spec.layouts:
            if use.partition(".")[0] == role:
                yield Problem(
                    ("cluster", "pools", pool, "layouts", use),
                    f"`{role}` has an adapter: each worker samples from the whole model, and "
                    '`shard = "fsdp2"` divides it over all workers of its pool',
                    hint="leave the layout out",
                    against=(("models", role, "lora"),),
                )


def _check_dtype(run: RunFile, role: str) -> None:
    facts, dtype = run.engines.role(role).generate.facts, run.models[role].dtype
    if dtype not in (known := facts.adapter_dtypes):
        raise RunFileError(
            f"on a GPU {facts.title} computes adapters in {' or '.join(known)}; "
            f"`models.{role}.dtype` is {as_toml(dtype)}",
            where=run.where(f"models.{role}.lora"),
            hint=f'set `models.{role}.dtype = "{known[0]}"`, or `engine = "hf"`',
        )
