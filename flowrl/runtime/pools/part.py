"""Parts: a plan as one worker has it."""

import time
from collections.abc import Mapping
from typing import Any

import attrs
import torch
from ray import cloudpickle

from flowrl.ir.plan import Plan
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.graph.reported import reported
from flowrl.runtime.graph.segments import Segment, inner_graphs, segments
from flowrl.runtime.host import Handle, Host, Resident, ScoreFunction
from flowrl.runtime.loading import Loader, pin_threads
from flowrl.runtime.measures import Measures
from flowrl.runtime.model.comparison import Comparison
from flowrl.runtime.model.models import DTYPES
from flowrl.runtime.pools.channels import Written
from flowrl.runtime.pools.job import Setup
from flowrl.runtime.ranks.edges import Edge
from flowrl.runtime.ranks.member import Member
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.runtime.ranks.way import Way
from flowrl.runtime.reshard import Wire
from flowrl.runtime.residency import Room


@attrs.frozen(eq=False)
class Part:
    """A plan as one worker has it.

    Attributes:
        graphs: the segments of each graph.
        it: what evaluates them.
        ranks: it and those that run the pool's models with it.
        ways: those that weights take from or to it.
    """

    graphs: tuple[tuple[Segment, ...], ...]
    it: Interpreter
    ranks: Ranks
    ways: Mapping[Edge, Way]

    @property
    def host(self) -> Host:
        """What models need to run here."""
        return self.it.host

    def reshard(self, edge: Edge, number: int, model: Handle | None, version: int) -> Handle | None:
        """Do what this worker does on an edge; return the model that has arrived, if it has here.

        Args:
            edge: a way that weights take from or to it.
            number: of the node.
            model: the one that is brought, where it is.
            version: its own.
        """
        host, way = self.host, self.ways[edge]
        generator = host.generators[edge.role] if way.arrives else None
        if generator:
            host.give(generator)  # weights that sleep from now on are read where they are
        held = model.engine.stored() if model else {}
        start = time.perf_counter()
        with host.timed("reshard"):
            sent = way.take(held, generator.stored() if generator else {})
        if not generator:
            return None
        self.it.measures.received([number], time.perf_counter() - start, [sent.received])
        generator.renewed(version)
        written: Any = Written(edge.role, generator, host.loaded)
        arrived = Resident(edge.role, written, version)
        host.loaded[generator] = arrived, version
        host.room.brought(generator)
        handle = Handle(arrived, version)
        host.compare(handle)  # while what was written is beside what it became
        return handle


def load_part(
    setup: Setup, member: Member, score: ScoreFunction | None, lender: Host | None
) -> Part:
    """Load the models of a plan that this worker has.

    Args:
        setup: the plan, and what each role loads.
        member: which part is this worker's.
        score: calls the reward functions, where they are.
        lender: has the model of `setup.loan`, if that is given.

    Raises:
        EngineError: a model can't be loaded.
    """
    pin_threads(setup.threads)
    given = Plan.from_json(setup.plan)
    graph = given.graph(cloudpickle.loads(setup.functions))
    pool = next(pool for pool in given.pools if pool.name == setup.pool)
    host = Host(seed=setup.seed, score=score, drop_failed=setup.drop_failed)
    loader = Loader(graph, setup.roles, setup.tokenizers, host, member)
    if setup.loan and lender:
        loader.borrow(lender, {setup.loan.name: setup.loan.role})
    else:
        host.room, host.comparison = Room(pool), Comparison(setup.check_every)
        loader.load()
    walked = tuple(tuple(segments(inner)) for inner in inner_graphs(graph))
    ways = {edge: _way(edge, setup, member) for edge in sorted(setup.legs, key=str)}
    return Part(walked, Interpreter(host, Measures(graph), reported(graph)), member.ranks, ways)


def _way(edge: Edge, setup: Setup, member: Member) -> Way:
    """Return an edge as this worker takes it; all of its workers ask in the same order."""
    ranks = member.groups[edge.ends]
    wire = _wire(edge, setup, ranks)
    ranks.sum([torch.zeros(1, device=wire.device)])  # nccl connects all before it sends
    return Way(edge, setup.legs[edge], wire, ranks, setup.check_every)


def _wire(edge: Edge, setup: Setup, ranks: Ranks) -> Wire:
    """Return how the weights of a role travel: as its generator computes, between GPUs if all are.

    Weights that train in float32 for a bfloat16 model lose what it would lose.
    """
    role = setup.roles[edge.role]
    devices = {role.model.device, role.generator_device or role.model.device}
    device = devices.pop() if len(devices) == 1 else "cpu"
    return Wire(DTYPES[role.model.dtype], device, ranks.group)
