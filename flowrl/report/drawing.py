"""What a picture shows of a graph, whatever it is drawn with."""

from collections.abc import Iterator

import attrs

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.nesting import ENGINE, sources, written_regions
from flowrl.ir.printer import plain, show
from flowrl.ir.types import ModelType
from flowrl.report.shapes import Box, Drawing, DrawnEdge, Look, Shape

PLUMBING = ("take", "transfer")
"""Ops that compute nothing: edges run through them."""


def draw(graph: Graph) -> Drawing:
    """Return the picture of a graph.

    Left out: rows that are taken along (their edges start at the op that chose the rows), masks
    that go with their tokens, and ops that only serve metrics, which stand in the list of metrics.
    A transfer is an edge.
    """
    return _Draughtsman(graph).run()


@attrs.frozen
class _End:
    """Where an edge starts, and what the value is called there."""

    shape: str
    name: str
    pool: str


class _Draughtsman:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.top = Box("program", graph.name)
        self.edges: dict[tuple[str, str], DrawnEdge] = {}
        self.ends: dict[Value, tuple[_End, ...]] = {}
        self.numbers: dict[Value, str] = {}
        self.drawn = 0

    def run(self) -> Drawing:
        self._inputs()
        self._level(self.graph, self.top, "")
        self._outputs()
        return Drawing(
            self.graph.name,
            self.top,
            {ends: edge for ends, edge in self.edges.items() if list(edge.values) != ["mask"]},
        )

    def _inputs(self) -> None:
        made: dict[str, Shape] = {}
        for name, value in self.graph.inputs:
            group, _, field = name.partition(".")
            if group not in made:
                is_model = isinstance(value.type, ModelType)
                look = Look.MODEL if is_model else Look.DATA
                made[group] = self._shape((group,), look, self._pool(self.top, value.pool))
            self.ends[value] = (_End(made[group].id, field, value.pool),)

    def _level(self, graph: Graph, box: Box, pool: str) -> None:
        """Draw the nodes of one graph; those without a pool of their own are in `pool`."""
        needed = _needed(graph)
        for node in graph.nodes:
            if node.op.name in PLUMBING:
                self._through(node)
            elif node.op.name == "constant":
                self.ends[node.results[0]] = ()
                self.numbers[node.results[0]] = show(node.op.attributes()["value"])
            elif node not in needed:
                ends = dict.fromkeys(end for arg in node.args for end in self.ends[arg])
                self.ends |= dict.fromkeys(node.results, tuple(ends))
            else:
                self._node(node, box, pool)

    def _through(self, node: Node) -> None:
        if node.op.name == "transfer":
            self.ends[node.results[0]] = self.ends[node.args[0]]
            return
        chosen, value = node.args
        choosers, makers = self.ends[chosen], self.ends[value]
        self.ends[node.results[0]] = tuple(
            _End(chooser.shape, maker.name, chooser.pool)
            for chooser in choosers
            for maker in makers
        )
        for chooser in choosers:
            self._connect(value, chooser.shape, chooser.pool)

    def _node(self, node: Node, box: Box, pool: str) -> None:
        regions = written_regions(node)
        pool = "" if _is_control(node) else node.pool or pool
        inside = self._pool(box, pool)
        if regions:
            inside = self._box(inside, node, pool)
            for name, region in regions.items():
                inner = inside if len(regions) == 1 else self._side(inside, name)
                self._region(node, name, region, inner, pool)
        shape = self._shape(tuple(self._lines(node)), _look(node), inside)
        names = node.op.result_names(len(node.results)) if len(node.results) > 1 else [""]
        for name, value in zip(names, node.results, strict=True):
            shown = "" if isinstance(value.type, ModelType) else name
            self.ends[value] = (_End(shape.id, shown, value.pool or pool),)
        for value in _read_by(node):
            self._connect(value, shape.id, pool)
        for region in regions.values():
            for _, value in _kept(region):
                self._connect(value, shape.id, pool)

    def _region(self, node: Node, name: str, region: Graph, box: Box, pool: str) -> None:
        for value, outer in sources(node, name).items():
            self.ends[value] = self.ends[outer]
        supplied = {n: value for n, value in region.inputs if n.startswith(ENGINE)}
        if supplied:  # the forward pass that a loss reads
            shape = self._shape((f"forward {_roles(node)}",), Look.ENGINE, box)
            for n, value in supplied.items():
                self.ends[value] = (_End(shape.id, n, pool),)
            for value in node.args[:3]:
                self._connect(value, shape.id, pool)
        self._level(region, box, pool)

    def _outputs(self) -> None:
        metrics: list[str] = []
        sources: list[Value] = []
        for name, value in self.graph.outputs:
            if name.startswith("metrics."):
                metrics.append(name.removeprefix("metrics."))
                sources.append(value)
            else:
                look = Look.MODEL if isinstance(value.type, ModelType) else Look.RESULT
                shape = self._shape((f"next {name}",), look, self.top)
                self._connect(value, shape.id, value.pool)
        if metrics:
            shape = self._shape(("metrics", *metrics), Look.RESULT, self.top)
            for value in sources:
                for end in self.ends[value]:
                    self.edges.setdefault((end.shape, shape.id), DrawnEdge())

    def _connect(self, value: Value, to: str, pool: str) -> None:
        for end in self.ends[value]:
            edge = self.edges.setdefault((end.shape, to), DrawnEdge())
            edge.values[end.name] = plain(value)
            edge.transfer |= bool(pool) and bool(end.pool) and end.pool != pool

    def _shape(self, lines: tuple[str, ...], look: Look, box: Box) -> Shape:
        self.drawn += 1
        shape = Shape(f"n{self.drawn}", lines, look)
        box.shapes.append(shape)
        return shape

    def _lines(self, node: Node) -> Iterator[str]:
        numbers = [self.numbers[value] for value in node.args if value in self.numbers]
        yield " ".join(part for part in (node.op.name, _roles(node), *numbers) if part)
        attributes = node.op.attributes().items()
        yield from _wrapped(
            [f"{name}={show(value)}" for name, value in attributes if name != "reads"]
        )

    def _pool(self, box: Box, pool: str) -> Box:
        """Return the box of a pool inside `box`; `box` itself if there is none, or it is that."""
        if not pool or box.id.endswith(f"@{pool}"):
            return box
        found = next((inner for inner in box.boxes if inner.pool and inner.title == pool), None)
        if found is None:
            found = Box(f"{box.id}@{pool}", pool, pool=True)
            box.boxes.append(found)
        return found

    def _box(self, box: Box, node: Node, pool: str) -> Box:
        """Return a new box for the nested graphs of a node."""
        self.drawn += 1
        inner = Box(f"b{self.drawn}@{pool}", f"{node.op.name} {_roles(node)}".strip())
        box.boxes.append(inner)
        return inner

    def _side(self, box: Box, name: str) -> Box:
        inner = Box(f"{box.id}_{name}", name)
        box.boxes.append(inner)
        return inner


def _needed(graph: Graph) -> set[Node]:
    """Return the nodes that more than metrics depend on, or that act on the world."""
    live = {value for _, value in _kept(graph)}
    needed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op.effect or not live.isdisjoint(node.results):
            needed.add(node)
            live.update(node.args)
    return needed


def _kept(graph: Graph) -> list[tuple[str, Value]]:
    """Return the outputs that are no metrics: models and carries, a loss, or what is drawn."""
    if graph.outputs and graph.outputs[0][0] == "loss":
        return list(graph.outputs[:1])
    return [p for p in graph.outputs if not p[0].startswith(("metrics.", "stats."))]


def _read_by(node: Node) -> tuple[Value, ...]:
    """Return the arguments that the node itself reads, rather than its nested graphs."""
    if not node.op.regions():
        return node.args
    inside = {id(v) for name in written_regions(node) for v in sources(node, name).values()}
    own = tuple(value for value in node.args if id(value) not in inside)
    return own if _is_control(node) else ()


def _wrapped(parts: list[str], width: int = 28) -> Iterator[str]:
    line = ""
    for part in parts:
        if line and len(line) + len(part) > width:
            yield line
            line = ""
        line = f"{line}, {part}" if line else part
    if line:
        yield line


def _roles(node: Node) -> str:
    models = [value.type.role for value in node.results if isinstance(value.type, ModelType)]
    return models[0] if len(models) == 1 else ""


def _look(node: Node) -> Look:
    if _is_control(node):
        return Look.CONTROL
    if node.args and isinstance(node.args[0].type, ModelType):
        return Look.ENGINE
    return Look.WORLD if node.op.effect else Look.TENSOR


def _is_control(node: Node) -> bool:
    """Whether the controller walks the node's nested graphs, each of their nodes in its pool."""
    return bool(node.op.regions()) and "loss" not in node.op.regions()
