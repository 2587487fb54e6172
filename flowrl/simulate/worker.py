"""A simulated worker: keeps the sizes of values, and is busy for as long as the plan predicts."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import attrs

from flowrl.compiler.tasks import Task
from flowrl.ir.graph import Node, Value
from flowrl.runtime.graph import machine
from flowrl.runtime.host import Path
from flowrl.runtime.pools.lines import Given, Line
from flowrl.runtime.ranks.edges import Edge
from flowrl.runtime.rows import selection
from flowrl.simulate.work import Work
from flowrl.simulate.world import Flow, Reply, Span, World


@attrs.frozen
class Size:
    """What is known of a value.

    Attributes:
        count: elements of its first axis; of a division, its turns.
        bytes: of all.
    """

    count: int = 0
    bytes: float = 0.0

    def part(self, count: int) -> "Size":
        """Return the size of so many of its elements."""
        return Size(count, self.bytes * count / self.count if self.count else 0.0)


@attrs.frozen(eq=False)
class Parcel:
    """Values on their way.

    Attributes:
        sizes: of each.
        sender: whose they are.
        at: when they are ready, in seconds.
    """

    sizes: Sequence[Size]
    sender: "SimulatedLine"
    at: float


@attrs.define(eq=False)
class SimulatedLine(Line):
    """A line with its worker: carries out a call at once, and knows when it would end.

    Ops other than `generate` are done by all workers of the pool together, as one model lies over
    all of them; the first one is told.

    Attributes:
        work: what ops take.
        world: the time.
        free: when the worker has done all that it was told, in seconds.
        crew: the lines of all pools.
        values: sizes by id.
        arguments: of instructions that come in parts.
    """

    work: Work = attrs.field(kw_only=True)
    world: World = attrs.field(kw_only=True)
    crew: Mapping[str, Sequence["SimulatedLine"]] = attrs.field(kw_only=True)
    free: float = 0.0
    values: dict[int, Size] = attrs.field(factory=dict)

    @property
    def name(self) -> tuple[str, int]:
        """Pool and index."""
        return self.pool, self.index

    def send(self, method: str, dead: Sequence[int], args: Sequence[Any], replies: int) -> Any:
        """Carry out a call, by the method of that name."""
        for number in dead:
            self.values.pop(number, None)
        self.world.now += self.world.call
        self.free = max(self.free, self.world.now)
        value = getattr(self, f"do_{method}")(*args)
        workers = [self.name]
        if replies == 1:
            return self.world.reply(workers, self.free, value)
        return [self.world.reply(workers, self.free, each) for each in value]

    def do_model(self, plan: str, role: str, name: str, result: int) -> None:
        """Keep a model."""
        self.values[result] = Size()

    def do_begin(self, plan: str, step: int) -> None:
        """Start a step."""

    def do_draw(self, plan: str, source: str, position: int, count: int, first: int) -> None:
        """Keep rows of the data."""
        usual = [self._size(value) for value in self.work.draws(source)] or [Size(count)] * 2
        self._keep(first, [size.part(count) for size in usual])

    def do_evaluate(
        self, plan: str, graph: int, number: int, given: Sequence[Given], first: int, path: Path
    ) -> None:
        """Be busy with the ops of a segment."""
        segment = self.work.segments[graph][number]
        for node in segment.nodes:
            if node in self.work.tasks:
                self._run(node, path)
        self._keep(first, [self._size(value) for value in segment.gives])

    def do_scatter(
        self, plan: str, graph: int, number: int, given: Sequence[Given], path: Path, workers: int
    ) -> list[float]:
        """Make room for sampling in the whole pool, and bring weights."""
        task = self.work.tasks[self.work.segments[graph][number].nodes[0]]
        self._prepare(task, path)
        return [self.free] * workers

    def do_sample(self, plan: str, graph: int, number: int, model: Given, asked: Reply) -> float:
        """Be busy with this engine's samples; return when they are there."""
        task = self.work.tasks[self.work.segments[graph][number].nodes[0]]
        self.free = max(self.free, asked.at)
        took = self.work.sampling(task, self.index, len(self._pool), self.world.rng)
        self._busy([self], str(task), took)
        return self.free

    def do_gather(
        self, plan: str, graph: int, number: int, model: Given, first: int, *answers: Reply
    ) -> None:
        """Wait for the samples of all engines."""
        self.free = max([self.free, *(answer.at for answer in answers)])
        gives = self.work.segments[graph][number].gives
        self._keep(first, [self._size(value) for value in gives])

    def do_call(self, function: Callable[..., Any], given: Sequence[Given], result: int) -> None:
        """Keep the size of what a function of values returns."""
        args = [self.values.get(x, Size()) if isinstance(x, int) else x[1] for x in given]
        if function is selection.select:
            self.values[result] = Size(ceil(self.work.groups[args[1]] / self.world.rounds))
        else:
            sized: Callable[..., Size] = RESULTS.get(function, _unknown)
            self.values[result] = sized(*args)

    def do_number(self, function: Callable[[Any], Any], value: int) -> int:
        """Return how many elements there are; whether something holds is drawn."""
        if function is bool:
            return int(self.world.rng.random() < 0.5)
        return self.values.get(value, Size()).count

    def do_words(self, function: Callable[[Any], str], value: int) -> str:
        """Return none: nothing is known of what is in a value."""
        return ""

    def do_numbers(self, ids: Sequence[int]) -> list[float]:
        """Return scalars, which have no size."""
        return [0.0] * len(ids)

    def do_send(self, plan: str, nodes: Sequence[int], *ids: int) -> Parcel:
        """Make values ready for other workers."""
        return Parcel([self.values.get(number, Size()) for number in ids], self, self.free)

    def do_version(self, model: int) -> int:
        """Return the version of a model, which nothing here depends on."""
        return 0

    def do_reshard(
        self, plan: str, edge: Edge, number: int, model: int, version: Reply, result: int
    ) -> None:
        """Keep a model: its weights came when an op needed them."""
        self.values[result] = Size()

    def do_receive(self, plan: str, nodes: Sequence[int], first: int, sent: Reply) -> None:
        """Wait for values; a model's weights came when an op needed them."""
        if sent.value is None:
            return
        parcel: Parcel = sent.value
        size = sum(each.bytes for each in parcel.sizes)
        at = parcel.at + self.work.crossing(size, parcel.sender.pool, self.pool)
        if size:
            self.world.flows.append(Flow("data", parcel.sender.name, self.name, parcel.at, at))
        self.free = max(self.free, at)
        self._keep(first, parcel.sizes)

    def do_finish(self, plan: str) -> tuple[dict[str, float], dict[str, float]]:
        """Return that nothing was counted."""
        return {}, {}

    def do_measured(self, plan: str, first: int, last: int) -> list[tuple[Any, ...]]:
        """Return that nothing was measured."""
        return []

    @property
    def _pool(self) -> Sequence["SimulatedLine"]:
        return self.crew[self.pool]

    def _run(self, node: Node, path: Path) -> None:
        """Have the whole pool do a task."""
        task = self.work.tasks[node]
        self._prepare(task, path)
        if task.kind == "generate":
            took = self.work.sampling(task, 0, 1, self.world.rng)
        else:
            took = self.work.seconds[task.name]
        self._busy(self._pool, str(task), took)

    def _prepare(self, task: Task, path: Path) -> None:
        """Wait until the pool is free; have seats leave and take it, and weights brought."""
        self._meet(self._pool)
        for action in self.work.due(task, path[-1] if path else 0):
            source = self.work.source(action)
            both = [*self._pool, *(self.crew[source] if source not in (None, self.pool) else ())]
            start = self._meet(both)
            self._busy(both, f"{action.does} {action.seat}", action.seconds)
            if len(both) > len(self._pool):
                lead = self.crew[str(source)][0].name
                self.world.flows.append(Flow("weights", lead, self.name, start, self.free))

    def _meet(self, lines: Sequence["SimulatedLine"]) -> float:
        """Have workers wait for one another; return until when."""
        at = max(line.free for line in lines)
        for line in lines:
            line.free = at
        return at

    def _busy(self, lines: Sequence["SimulatedLine"], what: str, seconds: float) -> None:
        """Have workers that are free at the same time do something."""
        if not seconds:
            return
        world, end = self.world, self.free + seconds
        world.spans.append(Span([x.name for x in lines], what, self.free, end, world.step))
        for line in lines:
            line.free = end

    def _size(self, value: Value) -> Size:
        return Size(round(self.work.sizes.count(value)), self.work.sizes.bytes(value))

    def _keep(self, first: int, sizes: Sequence[Size]) -> None:
        self.values.update(enumerate(sizes, start=first))


def _unknown(*args: Any) -> Size:
    return Size()


def _joined(*parts: Size) -> Size:
    return Size(sum(part.count for part in parts), sum(part.bytes for part in parts))


def _first(value: Size, axes: Any, start: int, stop: int) -> Size:
    return value.part(stop - start)


RESULTS: Mapping[Callable[..., Any], Callable[..., Size]] = {
    machine.minibatch: lambda value, division, turn, axes: value.part(
        ceil(value.count / max(1, division.count))
    ),
    machine.chosen: lambda value, kept, axes: value.part(kept.count),
    machine.joined: _joined,
    machine.stacked: lambda *turns: Size(len(turns)),
    selection.first: _first,
}
"""The size of what control flow has workers compute."""
