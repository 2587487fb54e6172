"""Which ops of two graphs correspond, whatever their values and axes are numbered."""

from collections.abc import Iterator

import attrs

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.nesting import sources, written_regions
from flowrl.ir.printer import show
from flowrl.ir.types import ModelType

CONTROL = ("scan", "cond", "sample_until")


@attrs.frozen(eq=False)
class Item:
    """A node, the nodes around it, and its arguments where they were really made."""

    node: Node
    owner: "Item | None"
    region: str
    args: tuple[Value, ...]

    @property
    def home(self) -> "Item | None":
        """The nearest node around it that isn't control flow: the update of a loss."""
        owner = self.owner
        while owner is not None and owner.node.op.name in CONTROL:
            owner = owner.owner
        return owner

    @property
    def place(self) -> str:
        """The nested graph that it stands in."""
        return f"{self.owner.node.op.name}.{self.region}" if self.owner else "the program"

    def results(self) -> dict[str, Value]:
        """Return the results by name."""
        names = self.node.op.result_names(len(self.node.results))
        return dict(zip(names, self.node.results, strict=True))


class Side:
    """One graph, flat: nested graphs follow their node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.origin: dict[Value, Value] = {}
        self.numbers: dict[Value, float] = {}
        self.called: dict[Value, str] = {value: name for name, value in graph.inputs}
        self.items = list(self._walk(graph, None, ""))

    def source(self, value: Value) -> Value:
        """Return where a value was really made."""
        while value in self.origin:
            value = self.origin[value]
        return value

    def name(self, value: Value) -> str:
        """Return a value as a reader would call it."""
        value = self.source(value)
        return show(self.numbers[value]) if value in self.numbers else self.called[value]

    def _walk(self, graph: Graph, owner: Item | None, region: str) -> Iterator[Item]:
        for node in graph.nodes:
            if node.op.name == "constant":
                self.numbers[node.results[0]] = node.op.attributes().get("value", 0.0)
            elif node.op.name == "take" or _over_turns(node):
                self.origin[node.results[0]] = node.args[-1 if node.op.name == "take" else 0]
            else:
                item = Item(node, owner, region, tuple(map(self.source, node.own_args)))
                self._call(node)
                yield item
                for name, inner in written_regions(node).items():
                    yield from self._enter(item, name, inner)

    def _enter(self, item: Item, name: str, inner: Graph) -> Iterator[Item]:
        self.origin |= sources(item.node, name)
        self.called |= {value: called for called, value in inner.inputs}
        yield from self._walk(inner, item, name)
        if item.node.op.name == "scan":
            ends = (value for _, value in inner.outputs)
            self.origin |= dict(zip(item.node.results, ends, strict=True))

    def _call(self, node: Node) -> None:
        names = node.op.result_names(len(node.results))
        for name, value in zip(names, node.results, strict=True):
            suffix = f".{name}" if len(names) > 1 else ""
            self.called[value] = f"{title(node)}{suffix}"


class Matching:
    """Pairs the ops of two sides: the surest first, each pair making others surer."""

    def __init__(self, old: Side, new: Side) -> None:
        self.old, self.new = old, new
        self.pairs: dict[Item, Item] = {}
        self.taken: set[Item] = set()
        self.same: dict[Value, Value] = {}
        inputs = dict(new.graph.inputs)
        for name, value in old.graph.inputs:
            if name in inputs:
                self.same[value] = inputs[name]

    def run(self) -> "Matching":
        """Match at each level of certainty, starting over whenever something was found."""
        while any(self._sweep(certainty) for certainty in (3, 2, 1, 0)):
            pass
        return self

    def equal(self, a: Value, b: Value) -> bool:
        """Return whether two values correspond."""
        a, b = self.old.source(a), self.new.source(b)
        if a in self.old.numbers or b in self.new.numbers:
            return self.old.numbers.get(a) == self.new.numbers.get(b)
        return self.same.get(a) is b

    def _sweep(self, certainty: int) -> bool:
        found = False
        for a in self.old.items:
            if a not in self.pairs:
                for b in self.new.items:
                    if b not in self.taken and self._certainty(a, b) >= certainty:
                        self._pair(a, b)
                        found = True
                        break
        return found

    def _certainty(self, a: Item, b: Item) -> int:
        if a.node.op.name != b.node.op.name or not self._same_home(a, b):
            return -1
        equal = [self.equal(x, y) for x, y in zip(a.args, b.args, strict=False)]
        if a.args and isinstance(a.args[0].type, ModelType) and not equal[0]:
            return -1
        if all(equal) and len(a.args) == len(b.args):
            return 3 if a.node.op.attributes() == b.node.op.attributes() else 2
        return 1 if any(equal) else 0

    def _same_home(self, a: Item, b: Item) -> bool:
        if a.home is None or b.home is None:
            return a.home is b.home
        return self.pairs.get(a.home) is b.home

    def _pair(self, a: Item, b: Item) -> None:
        self.pairs[a] = b
        self.taken.add(b)
        results = b.results()
        self.same |= {value: results[n] for n, value in a.results().items() if n in results}
        theirs = written_regions(b.node)
        for name, region in written_regions(a.node).items():
            inputs = dict(theirs[name].inputs) if name in theirs else {}
            self.same |= {v: inputs[n] for n, v in region.inputs if n in inputs}


def title(node: Node) -> str:
    """Return the op, with the role if it makes a new version of a model."""
    models = [v.type.role for v in node.results if isinstance(v.type, ModelType)]
    return " ".join([node.op.name, *models]) if len(models) == 1 else node.op.name


def _over_turns(node: Node) -> bool:
    """Whether the node reduces a statistic of a scan to one number."""
    axes = [axis.name for arg in node.args for axis in arg.axes]
    return axes == ["turn"] and len(node.results) == 1
