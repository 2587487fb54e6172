"""Pools of workers on Ray: started, found too large, and ended."""

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from flowrl.errors import EngineError
from flowrl.runtime.pools.channels import RayLine
from flowrl.runtime.pools.worker import Worker

log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds that resources may take to come free."""


QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the controller tells the first; others follow from it
}
"""What keeps Ray from warning of what is no fault."""


@attrs.frozen
class PoolSize:
    """What a pool takes.

    Attributes:
        name: as the run file calls it.
        workers: how many processes.
        gpus: of the pool in all, shared evenly by its workers.
        cpus: of each worker.
        together: how many neighbours divide a model's tensors, and should be on one machine.
    """

    name: str
    workers: int = 1
    gpus: int = 0
    cpus: float = 0.5
    together: int = 1

    @property
    def bundle(self) -> dict[str, float]:
        """What one worker takes."""
        gpus = {"GPU": self.gpus / self.workers} if self.gpus else {}
        return {"CPU": self.cpus} | gpus

    @property
    def total(self) -> dict[str, float]:
        """What all workers take."""
        return {name: amount * self.workers for name, amount in self.bundle.items()}


@attrs.frozen
class RaySpec:
    """Where workers run.

    Attributes:
        pools: in the order of the plan.
        address: `host:port` of a Ray that runs already; a local one is started if not given.
        num_gpus: GPUs that a local Ray believes it has; those found if not given.
        log: whether the workers' output is shown.
    """

    pools: tuple[PoolSize, ...]
    address: str | None = None
    num_gpus: int | None = None
    log: bool = False


Pools = Mapping[str, Sequence[RayLine]]
"""The workers of each pool, its first one first."""


@contextmanager
def started(spec: RaySpec) -> Iterator[Pools]:
    """Start a worker for every place in the pools; end them, and what is ours of Ray, at the end.

    Raises:
        EngineError: Ray can't be reached or is of another version, or lacks what the pools take.
    """
    groups: list[PlacementGroup] = []
    lines: list[RayLine] = []
    ours = not ray.is_initialized()
    try:
        connect(spec)
        check_resources(spec.pools, ray.cluster_resources(), "there are")
        for pool in spec.pools:
            groups.append(placement_group([pool.bundle] * pool.workers, strategy="PACK"))
        _wait(groups, spec.pools)
        pools = {
            p.name: start_workers(p, group) for p, group in zip(spec.pools, groups, strict=True)
        }
        lines += [line for pool in pools.values() for line in pool]
        _greet(lines)
        yield pools
    finally:
        _end(lines, groups, ours)


def connect(spec: RaySpec) -> None:
    """Start a local Ray, or connect to one, unless this process has one.

    Raises:
        EngineError: it can't be reached, or is of another version.
    """
    os.environ |= {name: x for name, x in QUIET.items() if name not in os.environ}
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"log_to_driver": spec.log, "logging_level": logging.ERROR}
    if spec.address is None:
        ray.init("local", num_gpus=spec.num_gpus, include_dashboard=False, **quiet)
        return
    _check_reachable(spec.address)
    try:
        ray.init(spec.address, **quiet)
    except (ConnectionError, RuntimeError) as error:
        reason = str(error).strip().splitlines()
        raise EngineError(
            f"can't use the Ray at {spec.address}: {' '.join(part.strip() for part in reason)}",
            hint=f"this is Ray {ray.__version__}: start the cluster with the same version, in "
            "the same Python",
        ) from error


def check_resources(pools: Sequence[PoolSize], present: Mapping[str, float], there: str) -> None:
    """Refuse pools that take more than there is.

    Raises:
        EngineError: with what is asked for and present, by resource and by pool.
    """
    lacking = []
    for resource in ("GPU", "CPU"):
        wanted = sum(pool.total.get(resource, 0) for pool in pools)
        if wanted > present.get(resource, 0):
            lacking.append(
                f"{wanted:g} {resource}s are wanted, {there} {present.get(resource, 0):g}"
            )
    if lacking:
        raise EngineError(
            "; ".join(lacking),
            made=[f"  pool `{p.name}`: {_amounts(p)}" for p in pools],
            hint="make the pools of [cluster] smaller, or put several roles in one",
        )


def start_workers(pool: PoolSize, group: PlacementGroup) -> list[RayLine]:
    """Start the workers of a pool, in the order of machines; they may not be up yet."""
    machines = ray.util.placement_group_table(group)["bundles_to_node_id"]
    order = by_machine([machines[bundle] for bundle in range(pool.workers)], pool.together)
    if split := spread([machines[bundle] for bundle in order], pool.together):
        log.warning(
            "pool `%s` has replicas on several machines, %d of %d: what their workers add up in "
            "each layer goes over the network; give it GPUs in multiples of %d a machine",
            *(pool.name, split, pool.workers // pool.together, pool.together),
        )
    return [
        RayLine(
            pool.name,
            index,
            actor=ray.remote(Worker)
            .options(
                num_cpus=pool.cpus,
                num_gpus=pool.bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
            )
            .remote(),
        )
        for index, bundle in enumerate(order)
    ]


def by_machine(machines: Sequence[str], together: int) -> list[int]:
    """Return an order of places in which as many neighbours as can be share a machine.

    Args:
        machines: of each place.
        together: how many neighbours should: each machine's whole groups come first, then what is
            left over on every machine.
    """
    whole: list[int] = []
    rest: list[int] = []
    for machine in dict.fromkeys(machines):
        its = [place for place, where in enumerate(machines) if where == machine]
        most = len(its) - len(its) % together
        whole, rest = whole + its[:most], rest + its[most:]
    return whole + rest


def spread(machines: Sequence[str], together: int) -> int:
    """Return how many replicas, of so many neighbours each, lie on several machines."""
    starts = range(0, len(machines), together)
    return sum(len({*machines[start : start + together]}) > 1 for start in starts)


def _wait(groups: Sequence[PlacementGroup], pools: Sequence[PoolSize]) -> None:
    """Wait until every worker has its place: others may hold what there is."""
    deadline = time.monotonic() + PATIENCE
    waiting = [
        pool
        for pool, group in zip(pools, groups, strict=True)
        if not group.wait(max(0.1, deadline - time.monotonic()))
    ]
    if waiting:
        check_resources(waiting, ray.available_resources(), "others leave")
        raise EngineError(
            "no machine of the cluster has room for a worker of "
            + " or ".join(f"`{p.name}` ({_amounts(p)})" for p in waiting),
            hint="a worker needs its GPU and its CPUs on one machine: look at `cpus`",
        )


def _greet(lines: Sequence[RayLine]) -> None:
    """Wait until every worker is up, however long that takes, and learn where it is."""
    replies = [line.actor.do.remote("place", ()) for line in lines]
    for line, reply in zip(lines, replies, strict=True):
        try:
            line.place = ray.get(reply)
        except RayError as error:
            raise EngineError(
                f"{line} can't start: {str(error).strip().splitlines()[-1].strip()}",
                hint="workers need the Python, the packages and the flowrl of this process",
            ) from error


def _amounts(pool: PoolSize) -> str:
    each = ", ".join(f"{amount:g} {name}s" for name, amount in pool.bundle.items())
    return f"{pool.workers} x ({each})"


def _check_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto", or a scheme that Ray knows
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise EngineError(
            f"no Ray answers at {address}: {error}",
            hint="start one there with `ray start --head`, or leave `cluster.address` out",
        ) from error


def _end(lines: Sequence[RayLine], groups: Sequence[PlacementGroup], ours: bool) -> None:
    for line in lines:
        ray.kill(line.actor)
    for group in groups:
        remove_placement_group(group)
    if ours and ray.is_initialized():
        ray.shutdown()
