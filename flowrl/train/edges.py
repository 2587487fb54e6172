"""The planned reshard of each edge that weights take in a run."""

from collections.abc import Callable, Mapping, Sequence

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage
from flowrl.compiler.reshard import plan_reshard
from flowrl.config.placement.shapes import shape_at
from flowrl.config.placement.widths import BYTES
from flowrl.runtime.known_engines import FACTS
from flowrl.runtime.pools.job import PlanEdge
from flowrl.runtime.ranks.edges import Edge
from flowrl.runtime.ranks.way import Leg
from flowrl.runtime.role_setup import RoleSetup
from flowrl.train.checks import checks_of
from flowrl.train.moves import move_of

STORED = {"float32": 4, "bfloat16": 4, "float64": 8}
"""Bytes of a weight where it trains, by the type of the arithmetic; `BYTES` where it samples."""


def edge_planner(roles: Mapping[str, RoleSetup], machines: str | None = None) -> PlanEdge:
    """Return what plans the reshards of a run.

    Args:
        roles: the models.
        machines: where the ranks are, `2x8xH100`; on one machine, if not given.
    """

    def planned(edge: Edge, sources: Sequence[int], targets: Sequence[int]) -> Callable[[int], Leg]:
        model, taken = roles[edge.role].model, Storage(FACTS[roles[edge.role].generator].takes)
        shape = shape_at(model.path)
        held = Sharding(edge.held, sources, element_bytes=STORED[model.dtype])
        needed = Sharding(edge.needed, targets, taken, BYTES[model.dtype])
        plan = plan_reshard(shape, held, needed, there(max(*sources, *targets) + 1, machines))
        return lambda rank: Leg(move_of(plan, shape, rank), checks_of(plan, shape, rank))

    return planned


def there(count: int, machines: str | None) -> Machines:
    """Return the machines, or one that has so many ranks if none are named or too few."""
    named = Machines.parse(machines) if machines else None
    return named if named and named.size >= count else Machines.parse(f"{count}xH100")
