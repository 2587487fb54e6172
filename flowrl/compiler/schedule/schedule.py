"""The events of a step, and the order in which each rank meets them."""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.schedule.events import Event, Mesh
from flowrl.ir.graph import Graph, Node
from flowrl.ir.layout import Layout
from flowrl.ir.plan import Pool
from flowrl.ir.printer import names_of, op_name
from flowrl.ir.types import ModelType
from flowrl.ops.control import ControlOp
from flowrl.ops.model import Base, Ema, Generate, ModelOp, Snapshot, Update
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import Constant


@attrs.frozen
class Order:
    """Ranks that do the same in the same order.

    Attributes:
        ranks: one after another or not.
        events: by their place in the schedule.
    """

    ranks: tuple[int, ...]
    events: tuple[int, ...]


@attrs.frozen
class Schedule:
    """What every rank does in a step; a loop's turn appears once.

    Attributes:
        events: in the order of the program.
        orders: of the ranks, equal ones together.
    """

    events: tuple[Event, ...]
    orders: tuple[Order, ...]

    @property
    def collectives(self) -> int:
        """At how many places ranks meet."""
        return sum(event.collective for event in self.events)

    @property
    def size(self) -> int:
        """How many ranks do anything."""
        return sum(len(order.ranks) for order in self.orders)


def schedule(graph: Graph, cluster: Cluster) -> Schedule:
    """Return what every rank does.

    One controller walks the graph and tells workers what to do; each does what it is told, in that
    order. So a rank's order is that of the program, of the events that it takes part in.

    Requires: a lowered graph, whose pools have ranks of their own. Ensures: each op's events are
    those of its layout; ranks of one order appear as one.
    """
    pools = {pool.name: pool for pool in cluster.pools}
    return schedule_of(_events(graph, pools, ""))


def schedule_of(events: Iterable[Event]) -> Schedule:
    """Return the schedule of ranks that all meet these events in their order."""
    events = tuple(events)
    seen: dict[int, list[int]] = {}
    for number, event in enumerate(events):
        for group in event.groups:
            for rank in group:
                seen.setdefault(rank, []).append(number)
    alike: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(seen):
        alike.setdefault(tuple(seen[rank]), []).append(rank)
    return Schedule(events, tuple(Order(tuple(ranks), its) for its, ranks in alike.items()))


def _events(graph: Graph, pools: Mapping[str, Pool], prefix: str) -> Iterator[Event]:
    names = names_of(graph)
    for node in graph.nodes:
        name = prefix + op_name(node, names)
        if isinstance(node.op, ControlOp):
            for region in node.op.regions().values():
                yield from _events(region, pools, f"{name}/")
        elif not isinstance(node.op, Constant):
            yield from _node(node, f"{name} {node.op.name}", pools)


def _node(node: Node, op: str, pools: Mapping[str, Pool]) -> Iterator[Event]:
    if isinstance(node.op, Transfer):
        yield from _transfer(node, op, pools)
    elif isinstance(node.op, ModelOp):
        yield from _model(node, node.op, op, pools[node.pool].ranks)
    elif pools[node.pool].gpus:
        yield Event(op, str(node.loc), "compute", "alone", (pools[node.pool].ranks[:1],))


def _transfer(node: Node, op: str, pools: Mapping[str, Pool]) -> Iterator[Event]:
    """Yield weights that all ranks of two pools exchange, or data from first rank to first rank."""
    source, target = pools[node.args[0].pool].ranks, pools[node.pool].ranks
    if isinstance(node.args[0].type, ModelType):
        name, does = f"{op} {node.args[0].type.role}", "weights"
    else:
        name, does, source, target = op, "data", source[:1], target[:1]
    meet = tuple(sorted({*source, *target}))
    if meet:
        yield Event(name, str(node.loc), "send", does, (meet,))


def _model(node: Node, op: ModelOp, name: str, ranks: range) -> Iterator[Event]:
    model = node.args[0].type
    assert isinstance(model, ModelType)
    layout = Layout.parse(model.layout or "1")
    mesh = Mesh(f"{name} {model.role}", str(node.loc), layout, ranks[: layout.size])
    match op:
        case Update():
            yield from mesh.update(op.passes or 1)
        case Generate():
            yield from mesh.generate()
        case Snapshot() | Ema() | Base():
            yield from mesh.alone()
        case _:
            yield from mesh.score()
