"""Pools and layouts of a run file, held against its machines and the models of its program."""

from pathlib import Path

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import check_fit
from flowrl.config.placement.shapes import shape_of
from flowrl.config.placement.used import used
from flowrl.config.run_file import RunFile
from flowrl.errors import EngineError, RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout


def check_machines(run: RunFile, cluster: Cluster) -> None:
    """Check that the machines of a run file have the GPUs of its pools.

    Raises:
        RunFileError: they have fewer.
    """
    machines, wanted = run.cluster.machines, sum(pool.gpus for pool in cluster.pools)
    if machines is not None and wanted > (size := Machines.parse(machines).size):
        raise RunFileError(
            f"the pools have {wanted} GPUs; `{machines}` has {size}",
            where=run.where("cluster.machines"),
            hint="give pools fewer `gpus`, or name more machines",
        )


def check_layouts(run: RunFile, graph: Graph) -> None:
    """Check that models can have the layouts of a run file, as far as the planner knows them.

    Raises:
        RunFileError: a model that is used doesn't divide so; naming the key.
    """
    read = {role for role, _ in used(run, graph)}
    for pool, spec in run.cluster.pools.items():
        for use, text in spec.layouts.items():
            if use.partition(".")[0] not in read:
                continue
            try:
                _check_layout(run, use, Layout.parse(text))
            except (RunFileError, EngineError) as error:
                where = run.source.where(("cluster", "pools", pool, "layouts", use))
                raise RunFileError(error.problem, where=where, hint=error.hint) from None


def _check_layout(run: RunFile, use: str, layout: Layout) -> None:
    """Refuse a layout that doesn't fit a model, or by which no engine that samples divides it."""
    role = use.partition(".")[0]
    if shape := shape_of(run, role):
        check_fit(shape, layout)
    folder = run.model_folder(role) if role in run.roles else Path()
    if layout.tp > 1 and use.endswith(".generate") and (folder / "config.json").is_file():
        from flowrl.runtime.model.tensor_parallel import check_divides  # transformers takes seconds

        check_divides(str(folder), layout.tp)
