"""What a run file says of GPUs, layouts and machines, held against its pools."""

from collections.abc import Iterator

from flowrl.compiler.hardware import Machines
from flowrl.config.tables.cluster import PoolSpec
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem
from flowrl.config.toml.types import as_toml
from flowrl.errors import RunFileError, nearest
from flowrl.ir.layout import Layout
from flowrl.ops.uses import USES


def pools_fit(tables: Tables) -> Iterator[Problem]:
    """Yield GPUs, layouts, residencies and machines that pools can't have."""
    yield from _gpus(tables)
    yield from _layouts(tables)
    yield from _residencies(tables)
    yield from _machines(tables)
    yield from _gpus_of_another_ray(tables)


def _gpus(tables: Tables) -> Iterator[Problem]:
    """Yield pools whose GPUs and workers don't go together: a worker uses one, or a part of one."""
    for pool, spec in tables.cluster.pools.items():
        path: KeyPath = ("cluster", "pools", pool)
        if spec.gpus > spec.workers:
            yield Problem(
                (*path, "gpus"),
                f"pool `{pool}` has {spec.gpus} GPUs for {_workers(spec)}; a worker uses one GPU",
                hint=f"set `workers = {spec.gpus}`",
                against=((*path, "workers"),),
            )
        elif spec.gpus and spec.workers % spec.gpus:
            yield Problem(
                (*path, "workers"),
                f"pool `{pool}`: {spec.workers} workers can't share {spec.gpus} GPUs evenly",
                hint="make `workers` a multiple of `gpus`",
                against=((*path, "gpus"),),
            )


def _layouts(tables: Tables) -> Iterator[Problem]:
    """Yield layouts that are none, of what the pool has not, or over another number of workers."""
    for pool, spec in tables.cluster.pools.items():
        for role, text in spec.layouts.items():
            path: KeyPath = ("cluster", "pools", pool, "layouts", role)
            yield from _strangers(path, spec, role, f"pool `{pool}` lays out `{role}`")
            try:
                size = Layout.parse(text).size
            except RunFileError as error:
                yield Problem(path, error.problem, error.hint)
                continue
            if size != spec.workers:
                yield Problem(
                    path,
                    f"layout `{text}` is of {size} ranks; pool `{pool}` has {_workers(spec)}",
                    hint="the product of a layout's axes is the number of workers of its pool",
                    against=(("cluster", "pools", pool, "workers"),),
                )
            elif 0 < spec.gpus < size:
                yield Problem(
                    path,
                    f"layout `{text}` is of {size} ranks, each with a GPU of its own; pool "
                    f"`{pool}` has {spec.gpus} GPUs for {spec.workers} workers",
                    hint=f"set `gpus = {size}`, or 0 for the CPU",
                    against=(("cluster", "pools", pool, "gpus"),),
                )


def _residencies(tables: Tables) -> Iterator[Problem]:
    """Yield residencies of what the pool has not."""
    for pool, spec in tables.cluster.pools.items():
        for role in spec.residencies:
            path: KeyPath = ("cluster", "pools", pool, "residencies", role)
            yield from _strangers(path, spec, role, f"pool `{pool}` has a residency of `{role}`")


def _machines(tables: Tables) -> Iterator[Problem]:
    """Yield machines that are none."""
    if tables.cluster.machines is None:
        return
    try:
        Machines.parse(tables.cluster.machines)
    except RunFileError as error:
        yield Problem(("cluster", "machines"), error.problem, error.hint)


def _gpus_of_another_ray(tables: Tables) -> Iterator[Problem]:
    """Yield a number of GPUs for a Ray that flowrl doesn't start."""
    cluster = tables.cluster
    if cluster.address is not None and cluster.num_gpus is not None:
        yield Problem(
            ("cluster", "num_gpus"),
            "`cluster.num_gpus` is for a Ray that flowrl starts; the one at "
            f"`cluster.address` = {as_toml(cluster.address)} knows its own",
            hint="leave one of them out",
            against=(("cluster", "address"),),
        )


def _strangers(path: KeyPath, spec: PoolSpec, role: str, said: str) -> Iterator[Problem]:
    """Yield what a pool doesn't claim, and what is no use of a model."""
    use = role.partition(".")[2]
    if not any(f"{role}.".startswith(f"{claim}.") for claim in spec.roles):
        roles = ", ".join(spec.roles) or "none"
        yield Problem(path, f"{said}, which it does not claim", hint=f"its roles are {roles}")
    elif use and use not in USES:
        uses = ", ".join(f"`{use}`" for use in USES)
        yield Problem(
            path,
            f"{said}; `{use}` is not a use of a model{nearest(use, USES)}",
            hint=f"uses are {uses}",
        )
    elif role == "data":
        yield Problem(path, f"{said}, which is not a model", hint="leave it out")


def _workers(spec: PoolSpec) -> str:
    return f"{spec.workers} worker{'s' if spec.workers > 1 else ''}"
