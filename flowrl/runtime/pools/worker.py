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

from flowrl.ir.graph import Node, Value
from flowrl.ops.model import ModelOp
from flowrl.runtime.graph import perform
from flowrl.runtime.host import Handle, Path, Resident
from flowrl.runtime.out_of_memory import out_of_memory_told
from flowrl.runtime.pools import channels
from flowrl.runtime.pools.channels import Address
from flowrl.runtime.pools.failures import Failure, told
from flowrl.runtime.pools.job import Data, Group, Rewards, Setup
from flowrl.runtime.pools.lines import Given, worker_name
from flowrl.runtime.pools.part import Part, load_part
from flowrl.runtime.ranks import ranks
from flowrl.runtime.ranks.edges import Edge
from flowrl.runtime.ranks.member import Member
from flowrl.runtime.ranks.ranks import ALONE, Ranks
from flowrl.runtime.rows.rows import Cursor, fields
from flowrl.runtime.rows.shares import send_list, shares
from flowrl.runtime.said import heard


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
            with out_of_memory_told():
                return getattr(self, method)(*args)
        except Exception as error:
            raise Failure(told(error), self.node) from None

    def place(self) -> str:
        """Return this process and its node."""
        return f"pid {os.getpid()} on {socket.gethostname()}"

    def open_store(self) -> str:
        """Open the store where the ranks of this pool find each other; return its address."""
        host = ray.util.get_node_ip_address()
        self.store = store = ranks.open_store(host)
        return f"{host}:{store.port}"

    def join(
        self,
        address: str,
        world: Ranks,
        groups: Sequence[Group] = (),
        sizes: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Become a rank among the workers of this run, and of those groups that it is in.

        Args:
            address: of the store where they find each other.
            world: its place among all.
            groups: those that talk among themselves.
            sizes: pools and their workers, in the order of the ranks: so messages call them.
        """
        self.store = self.store or ranks.connect(address, world)
        names = [worker_name(index, pool) for pool, size in sizes for index in range(size)]
        self.world = world = ranks.join(world, self.store, names)
        places = [(group.name, ranks.among(world, group.members)) for group in groups]
        self.groups = {name: own for name, own in places if own}

    def open_rewards(self, opening: Callable[[], Rewards]) -> Address:
        """Import the reward functions; return what rows must have, for whoever opens the data."""
        self.rewards = opening()
        return channels.put([self.rewards.columns])

    def open_data(
        self, plan: str, opening: Callable[[Any], Mapping[str, Data]], columns: Address | None
    ) -> list[tuple[int, str]]:
        """Read the data of a plan's inputs; return the rows and a sentence of each."""
        known = channels.get(columns)[0] if columns else None
        opened = opening(known)
        self.cursors |= {(plan, name): data.cursor() for name, data in opened.items()}
        return [(data.rows, data.sentence()) for data in opened.values()]

    def load(self, plan: str, setup: Setup, lead: bool) -> list[str]:
        """Load this worker's part of a plan, under a name; return what was logged meanwhile.

        `lead` has the pool's values.
        """
        said: list[str] = []
        score = self.rewards.score(plan) if self.rewards else None
        member = Member(setup.pool, lead, self.groups)
        lender = self.parts[setup.loan.plan].host if setup.loan else None
        with heard(said.append):
            self.parts[plan] = load_part(setup, member, score, lender)
        return said

    def model(self, plan: str, role: str, name: str, result: int) -> None:
        """Keep the model of a role as a value, under the role's name in the plan that reads it."""
        resident = self.parts[plan].host.models[role]
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
        with self.parts[plan].host.timed("data"):
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

    def words(self, function: Callable[[Any], str], value: int) -> str:
        """Return a few words about a value."""
        return function(self.values[value])

    def numbers(self, ids: Sequence[int]) -> list[float]:
        """Return scalars."""
        return [float(self.values[number]) for number in ids]

    def send(self, plan: str, nodes: Sequence[int], *ids: int) -> Address:
        """Make values ready for other workers; `nodes` ask for them, if any do."""
        start = time.perf_counter()
        address = channels.put([self.values[number] for number in ids])
        if nodes:
            self.parts[plan].it.measures.sent(nodes, time.perf_counter() - start)
        return address

    def attend(self, *ids: int) -> None:
        """Take part in gathering the models among values that another rank sends."""
        for value in map(self.values.__getitem__, ids):
            if isinstance(value, Handle):
                deque(value.engine.gathered(), maxlen=0)

    def receive(self, plan: str, nodes: Sequence[int], first: int, address: Address) -> None:
        """Keep values that another worker sends."""
        start = time.perf_counter()
        values = channels.get(address)
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
        given = self.values.get(model)
        held = given if isinstance(given, Handle) else None
        arrived = self.parts[plan].reshard(edge, number, held, version)
        if arrived:
            self.values[result] = arrived

    def scatter(
        self, plan: str, graph: int, number: int, given: Sequence[Given], path: Path, workers: int
    ) -> Any:
        """Divide the requests of a `generate` into whole blocks for the workers of this pool."""
        part, node = self._generate(plan, graph, number)
        handle, context, rows = self._values(given)
        asked = perform.asked(part.it, node, handle, context, rows, path, workers)
        want = shares([sum(r.n for r in block) for block in asked], workers)
        addresses: list[Any] = [channels.put([[]]) for _ in want]
        for send in send_list([range(len(asked))], want):
            addresses[send.dst] = channels.put([asked[send.start : send.stop]])
        return addresses[0] if workers == 1 else addresses

    def sample(self, plan: str, graph: int, number: int, model: Given, asked: Address) -> Address:
        """Return the completions of this worker's blocks."""
        part, node = self._generate(plan, graph, number)
        (handle,), (blocks,) = self._values([model]), channels.get(asked)
        part.host.take(node, handle)
        with _together(part.ranks, node), part.it.measures.of(node):
            done = perform.answers(part.it, node, handle, blocks)
            part.host.compare(handle)
        return channels.put([done])

    def gather(
        self, plan: str, graph: int, number: int, model: Given, first: int, *answers: Address
    ) -> None:
        """Keep the rollouts that the workers' completions make, in the order of their rows."""
        part, node = self._generate(plan, graph, number)
        (handle,) = self._values([model])
        done = [group for address in answers for group in channels.get(address)[0]]
        results = perform.rollouts(part.it, done, handle.version)
        named = dict(zip(node.results, results, strict=True))
        self._keep(first, [named[value] for value in part.graphs[graph][number].gives])

    def finish(self, plan: str) -> tuple[dict[str, float], dict[str, float]]:
        """Return what was counted in this step, and the seconds by kind of op."""
        host = self.parts[plan].host
        return dict(host.counts), dict(host.seconds)

    def measured(self, plan: str, first: int, last: int) -> list[tuple[Any, ...]]:
        """Return what was measured in this step of nodes `first` to `last`, as plain numbers."""
        found = self.parts[plan].it.measures.found.items()
        return [(n, *attrs.astuple(its)) for n, its in found if first <= n < last]

    def loaded(self, plan: str, role: str) -> int:
        """Return the version of a role that its generator has."""
        host = self.parts[plan].host
        return host.loaded[host.generators[role]][1]

    def save(self, plan: str, role: str, folder: str) -> int:
        """Write a trained model as transformers does; return its version."""
        resident = self.parts[plan].host.models[role]
        resident.engine.save(folder)  # type: ignore[attr-defined]
        return resident.version

    def _generate(self, plan: str, graph: int, number: int) -> tuple[Part, Any]:
        self.node = 0
        part = self.parts[plan]
        return part, part.graphs[graph][number].nodes[0]

    def _values(self, given: Sequence[Given]) -> list[Any]:
        return [self.values[x] if isinstance(x, int) else _inline(*x) for x in given]

    def _keep(self, first: int, values: Any) -> None:
        self.values.update(enumerate(values, start=first))


def _together(ranks: Ranks, node: Node, path: Path = ()) -> AbstractContextManager[None]:
    """Wait until all ranks are at an op of models: what they do in it, they do together."""
    if not isinstance(node.op, ModelOp):
        return nullcontext()
    turn = f" in turn {'.'.join(map(str, path))}" if path else ""
    return ranks.together(f"`{node.op.name}` ({node.loc}){turn}")


def _inline(kind: str, value: Any) -> Any:
    return torch.tensor(value) if kind == "number" else value
