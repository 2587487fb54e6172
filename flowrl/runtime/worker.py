"""The worker: one process that hosts engines and keeps values, and does as the controller says."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import ray
import torch
from ray import cloudpickle

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.plan import Plan
from flowrl.ops.model import ModelOp
from flowrl.ops.uses import uses_of
from flowrl.runtime import channels, perform, ranks
from flowrl.runtime.channels import Box, Gone
from flowrl.runtime.edges import Edge
from flowrl.runtime.failures import Failure, told
from flowrl.runtime.host import Handle, Host, Path, Resident
from flowrl.runtime.interpret import Interpreter
from flowrl.runtime.job import Data, Group, Rewards, Setup
from flowrl.runtime.lines import Given
from flowrl.runtime.local import (
    Seat,
    load_generator,
    load_judges,
    load_models,
    pin_threads,
)
from flowrl.runtime.measures import Measures
from flowrl.runtime.models import DTYPES
from flowrl.runtime.ranks import ALONE, Ranks
from flowrl.runtime.reshard import Wire
from flowrl.runtime.residency import Room
from flowrl.runtime.rows import Cursor, fields
from flowrl.runtime.segments import Segment, inner_graphs, segments
from flowrl.runtime.shares import send_list, shares
from flowrl.runtime.way import Way


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


class Worker:
    """Evaluates segments of graphs on values that it keeps by id. One class serves every pool."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.parts: dict[str, Part] = {}
        self.cursors: dict[tuple[str, str], Cursor] = {}
        self.rewards: Rewards | None = None
        self.world = ALONE
        self.groups: dict[str, Ranks] = {}
        self.store: Any = None
        self.node: int | None = None

    def do(self, method: str, dead: Sequence[int], *args: Any) -> Any:
        """Forget dead values, then call a method.

        Raises:
            Failure: with the error that it raised, and the node at which.
        """
        for number in dead:
            self.values.pop(number, None)
        self.node = None
        try:
            return getattr(self, method)(*args)
        except Exception as error:
            raise Failure(told(error), self.node) from None

    def place(self) -> str:
        """Return this process and its node."""
        return f"pid {os.getpid()} on {socket.gethostname()}"

    def held(self) -> int:
        """Return how many values it keeps."""
        return len(self.values)

    def reset(self) -> None:
        """Forget everything: another run takes this worker."""
        if self.rewards:
            self.rewards.close()
        ranks.leave()
        self.__init__()  # type: ignore[misc]

    def open_store(self) -> str:
        """Open the store where the ranks of this pool find each other; return its address."""
        host = ray.util.get_node_ip_address()
        self.store = store = ranks.open_store(host)
        return f"{host}:{store.port}"

    def join(self, address: str, world: Ranks, groups: Sequence[Group] = ()) -> None:
        """Become a rank among the workers of this run, and of those groups that it is in."""
        self.store = self.store or ranks.connect(address, world)
        self.world = world = ranks.join(world, self.store)
        parts = [(group.name, ranks.part(world, group.members)) for group in groups]
        self.groups = {name: own for name, own in parts if own}

    def open_rewards(self, opening: Callable[[], Rewards]) -> Box:
        """Import the reward functions; return what rows must have, for whoever opens the data."""
        self.rewards = opening()
        return channels.put([self.rewards.columns])

    def open_data(
        self, plan: str, opening: Callable[[Any], Mapping[str, Data]], columns: Box | None
    ) -> list[tuple[int, str]]:
        """Read the data of a plan's inputs; return the rows and a sentence of each."""
        known = channels.get(columns)[0] if columns else None
        opened = opening(known)
        self.cursors |= {(plan, name): data.cursor() for name, data in opened.items()}
        return [(data.rows, data.sentence()) for data in opened.values()]

    def load(self, plan: str, setup: Setup, lead: bool) -> None:
        """Load this worker's part of a plan, under a name; `lead` has the pool's values."""
        pin_threads(setup.threads)
        given = Plan.from_json(setup.plan)
        graph = given.graph(cloudpickle.loads(setup.functions))
        score = self.rewards.score(plan) if self.rewards else None
        host = Host(seed=setup.seed, score=score, drop_failed=setup.drop_failed)
        pool = next(pool for pool in given.pools if pool.name == setup.pool)
        host.room = Room(pool)
        seat = Seat(setup.pool, lead, self.groups)
        if setup.loan:
            self._borrow(setup, graph, host, seat)
        else:
            load_models(graph, setup.roles, setup.tokenizers, host, seat)
        walked = tuple(tuple(segments(inner)) for inner in inner_graphs(graph))
        ways = {edge: self._way(edge, setup) for edge in sorted(setup.legs, key=str)}
        self.parts[plan] = Part(walked, Interpreter(host, Measures(graph)), seat.ranks, ways)

    def model(self, plan: str, role: str, name: str, result: int) -> None:
        """Keep the model of a role as a value, under the role's name in the plan that reads it."""
        resident = self.parts[plan].it.host.models[role]
        if name != role:
            resident = Resident(name, resident.engine, resident.version)
        self.values[result] = Handle(resident, resident.version)

    def begin(self, plan: str, step: int) -> None:
        """Start a step."""
        it = self.parts[plan].it
        it.host.begin(step, {})
        it.measures.clear()

    def draw(self, plan: str, source: str, position: int, count: int, first: int) -> None:
        """Keep the fields of `count` rows of the data."""
        with self.parts[plan].it.host.timed("data"):
            cursor = self.cursors[plan, source]
            cursor.position = position
            batch = cursor.take(count)
        self._keep(first, fields(batch, source).values())

    def evaluate(
        self, plan: str, graph: int, number: int, given: Sequence[Given], first: int, path: Path
    ) -> None:
        """Evaluate a segment; keep what it gives under ids from `first` on."""
        part = self.parts[plan]
        segment = part.graphs[graph][number]
        env: dict[Value, Any] = dict(zip(segment.reads, self._values(given), strict=True))
        for self.node, node in enumerate(segment.nodes):
            with _together(part.ranks, node, path):
                results = part.it.evaluate(node, [env[arg] for arg in node.args], path)
            env.update(zip(node.results, results, strict=True))
        self._keep(first, [env[value] for value in segment.gives])

    def call(self, function: Callable[..., Any], given: Sequence[Given], result: int) -> None:
        """Keep what a function of values returns."""
        self.values[result] = function(*self._values(given))

    def number(self, function: Callable[[Any], int], value: int) -> int:
        """Return a number about a value."""
        return function(self.values[value])

    def numbers(self, ids: Sequence[int]) -> list[float]:
        """Return scalars."""
        return [float(self.values[number]) for number in ids]

    def send(self, plan: str, nodes: Sequence[int], *ids: int) -> Box:
        """Make values ready for other workers; `nodes` ask for them, if any do."""
        start = time.perf_counter()
        box = channels.put([self.values[number] for number in ids])
        if nodes:
            self.parts[plan].it.measures.sent(nodes, time.perf_counter() - start)
        return box

    def attend(self, *ids: int) -> None:
        """Take part in gathering the models among values that another rank sends."""
        for value in map(self.values.__getitem__, ids):
            if isinstance(value, Handle):
                deque(value.engine.gathered(), maxlen=0)

    def receive(self, plan: str, nodes: Sequence[int], first: int, box: Box) -> None:
        """Keep values that another worker sends."""
        start = time.perf_counter()
        values = channels.get(box)
        took = time.perf_counter() - start
        if nodes:
            sizes = [channels.size(value) for value in values]
            self.parts[plan].it.measures.received(nodes, took, sizes)
        self._keep(first, values)

    def version(self, model: int) -> int:
        """Return the version of a model."""
        return int(self.values[model].version)

    def reshard(
        self, plan: str, edge: Edge, number: int, model: int, version: int, result: int
    ) -> None:
        """Bring a model's weights into the layout that is needed at the end of an edge.

        A worker at the start sends its own tensors, one at the end has its generator's written.
        """
        self.node = 0
        part = self.parts[plan]
        host, handle = part.it.host, self.values.get(model)
        way = part.ways[edge]
        generator = host.generators[edge.role] if way.arrives else None
        if generator:
            host.give(generator)  # weights that sleep from now on are read where they are
        held = handle.engine.stored() if isinstance(handle, Handle) else {}
        start = time.perf_counter()
        with host.timed("reshard"):
            sent = way.take(held, generator.stored() if generator else {})
        if generator:
            took = time.perf_counter() - start
            part.it.measures.received([number], took, [sent.received])
            generator.renewed(version)
            gone: Any = Gone(edge.role)
            arrived = Resident(edge.role, gone, version)
            host.loaded[generator] = arrived, version
            host.room.brought(generator)
            self.values[result] = Handle(arrived, version)

    def scatter(
        self, plan: str, graph: int, number: int, given: Sequence[Given], path: Path, workers: int
    ) -> Any:
        """Divide the requests of a `generate` into whole blocks for the workers of this pool."""
        part, node = self._generate(plan, graph, number)
        handle, context, rows = self._values(given)
        asked = perform.asked(part.it, node, handle, context, rows, path)
        want = shares([sum(r.n for r in block) for block in asked], workers)
        boxes: list[Any] = [channels.put([[]]) for _ in want]
        for send in send_list([range(len(asked))], want):
            boxes[send.dst] = channels.put([asked[send.start : send.stop]])
        return boxes[0] if workers == 1 else boxes

    def sample(self, plan: str, graph: int, number: int, model: Given, asked: Box) -> Box:
        """Return the completions of this worker's blocks."""
        part, node = self._generate(plan, graph, number)
        (handle,), (blocks,) = self._values([model]), channels.get(asked)
        part.it.host.take(node, handle)
        with _together(part.ranks, node), part.it.measures.of(node):
            done = perform.answers(part.it, node, handle, blocks)
        return channels.put([done])

    def gather(
        self, plan: str, graph: int, number: int, model: Given, first: int, *answers: Box
    ) -> None:
        """Keep the rollouts that the workers' completions make, in the order of their rows."""
        part, node = self._generate(plan, graph, number)
        (handle,) = self._values([model])
        done = [group for box in answers for group in channels.get(box)[0]]
        results = perform.rollouts(part.it, done, handle.version)
        named = dict(zip(node.results, results, strict=True))
        self._keep(first, [named[value] for value in part.graphs[graph][number].gives])

    def finish(self, plan: str) -> tuple[dict[str, float], dict[str, float]]:
        """Return what was counted in this step, and the seconds by kind of op."""
        host = self.parts[plan].it.host
        return dict(host.counts), dict(host.seconds)

    def actions(self, plan: str) -> list[tuple[str, str]]:
        """Return who has left the device and taken it in this step: seats, and what they did."""
        return [(seat, does.value) for seat, does in self.parts[plan].it.host.room.done]

    def measured(self, plan: str, first: int, last: int) -> list[tuple[Any, ...]]:
        """Return what was measured in this step of nodes `first` to `last`, as plain numbers."""
        found = self.parts[plan].it.measures.found.items()
        return [(n, *attrs.astuple(its)) for n, its in found if first <= n < last]

    def loaded(self, plan: str, role: str) -> int:
        """Return the version of a role that its generator has."""
        host = self.parts[plan].it.host
        return host.loaded[host.generators[role]][1]

    def save(self, plan: str, role: str, folder: str) -> int:
        """Write a trained model as transformers does; return its version."""
        resident = self.parts[plan].it.host.models[role]
        resident.engine.save(folder)  # type: ignore[attr-defined]
        return resident.version

    def _way(self, edge: Edge, setup: Setup) -> Way:
        """Return an edge as this worker takes it; all of its workers ask in the same order."""
        ranks = self.groups[edge.ends]
        wire = wire_of(setup, edge, ranks)
        ranks.sum([torch.zeros(1, device=wire.device)])  # nccl connects all before it sends
        return Way(edge, setup.legs[edge], wire, ranks, setup.check_every)

    def _borrow(self, setup: Setup, graph: Graph, host: Host, seat: Seat) -> None:
        loan = setup.loan
        assert loan is not None
        role = loan.name
        lender, own = self.parts[loan.plan].it.host, setup.roles[role]
        host.room = lender.room
        load_judges(graph, setup.roles, setup.tokenizers, host, lender, seat)
        if seat.samples(uses_of(graph)[role]):
            replica = seat.replica(uses_of(graph)[role])
            made = lender.generators.get(loan.role)
            if not made:
                made = load_generator(own, setup.tokenizers[role], replica)
                host.room.admit(made, loan.role, "generate")
            host.generators = {role: made}
            host.loaded, host.shared = lender.loaded, lender.shared
        host.decoders, host.sampling = setup.tokenizers, {role: own.sampling}
        host.sequences_per_block = {role: own.sequences_per_block}

    def _generate(self, plan: str, graph: int, number: int) -> tuple[Part, Any]:
        self.node = 0
        part = self.parts[plan]
        return part, part.graphs[graph][number].nodes[0]

    def _values(self, given: Sequence[Given]) -> list[Any]:
        return [self.values[x] if isinstance(x, int) else _inline(*x) for x in given]

    def _keep(self, first: int, values: Any) -> None:
        self.values.update(enumerate(values, start=first))


def wire_of(setup: Setup, edge: Edge, ranks: Ranks) -> Wire:
    """Return how the weights of a role travel: as its generator computes, between GPUs if all are.

    Weights that train in float32 for a bfloat16 model lose what it would lose.
    """
    role = setup.roles[edge.role]
    devices = {role.model.device, role.generator_device or role.model.device}
    device = devices.pop() if len(devices) == 1 else "cpu"
    return Wire(DTYPES[role.model.dtype], device, ranks.group)


def _together(ranks: Ranks, node: Node, path: Path = ()) -> AbstractContextManager[None]:
    """Wait until all ranks are at an op of models: what they do in it, they do together."""
    if not isinstance(node.op, ModelOp):
        return nullcontext()
    turn = f" in turn {'.'.join(map(str, path))}" if path else ""
    return ranks.together(f"`{node.op.name}` ({node.loc}){turn}")


def _inline(kind: str, value: Any) -> Any:
    return torch.tensor(value) if kind == "number" else value
