"""What a reshard costs, for a search over placements."""

from functools import lru_cache

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding
from flowrl.compiler.reshard.plan import checked
from flowrl.compiler.reshard.planning import Route, plan_class
from flowrl.compiler.reshard.traffic import Traffic
from flowrl.compiler.shapes import ModelShape


@lru_cache(maxsize=1 << 14)
def reshard_cost(
    shape: ModelShape, src: Sharding, dst: Sharding, machines: Machines
) -> tuple[int, float]:
    """Return the bytes and the seconds of `plan_reshard`, without keeping the plan.

    Raises:
        RunFileError: as `plan_reshard`.
    """
    route, traffic = checked(Route(shape, src, dst, machines)), Traffic(machines)
    for alike in route.classes():
        plan_class(alike, route, traffic)
    return traffic.moved, traffic.seconds()
