"""Decide how each loss meets microbatches: as a sum over rows in one pass, or in two passes."""

from collections.abc import Iterable
from enum import Enum, auto

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.errors import Location
from flowrl.ir.builder import GraphBuilder, Rewriter
from flowrl.ir.graph import CAPTURED, FIXED, NEW, Graph, Node, Value
from flowrl.ir.regions import map_regions, used_inputs
from flowrl.ir.signature import Pattern, Signature
from flowrl.ir.types import Axis, TensorType
from flowrl.ops.model import Update
from flowrl.ops.tensor import Constant, Per, TensorOp

LINEAR = ("add", "sub", "neg")
WITHOUT_LAST = TensorOp(
    "arithmetic:sum",
    Signature.parse("f32[..., token] -> f32[...]", ("x",)),
    Per.SAMPLE,
    (("over", "token"),),
)
"""Gives a value's form less its tokens."""


def split_losses(graph: Graph, cluster: Cluster) -> Graph:
    """Split each loss into a prologue and a part, or mark it for two passes.

    A loss that is a sum over rows, once its divisors are known, runs in one pass: the prologue
    computes what doesn't depend on `new`, divisors among it, for the whole minibatch, and the part
    gives the share of some rows. Any other loss runs in two passes (GradCache, Gao et al. 2021,
    arXiv:2101.06983): exact, for one more forward pass.

    Requires: nothing. Ensures: every update has `passes` 1 or 2; the reason stands in `why`.
    """
    out = Rewriter(graph)
    for node in graph.nodes:
        op = map_regions(node.op, lambda region: split_losses(region, cluster))
        if isinstance(op, Update) and not op.passes:
            op = _split(op)
        out.copy(node, op=op)
    return out.done()


class Form(Enum):
    """What a value of a loss is, seen from the rows of a microbatch."""

    FIXED = auto()
    """Doesn't depend on `new`."""
    ROWS = auto()
    """Each row's elements depend on that row only."""
    SHARE = auto()
    """A number that is a sum over rows."""


@attrs.frozen
class _TwoPasses(Exception):
    """The loss isn't a sum over rows."""

    why: str
    loc: Location


def _split(op: Update) -> Update:
    try:
        prologue, part = _Splitter(op.loss).run()
    except _TwoPasses as reason:
        return attrs.evolve(op, passes=2, why=f"{reason.why} at {reason.loc}")
    return attrs.evolve(op, passes=1, prologue=prologue, part=part)


class _Splitter:
    """Walks the nodes that the loss needs, building both graphs."""

    def __init__(self, loss: Graph) -> None:
        self.loss = loss
        self.prologue, self.part = GraphBuilder("prologue"), GraphBuilder("part")
        self.forms: dict[Value, Form] = {}
        self.in_prologue: dict[Value, Value] = {}
        self.in_part: dict[Value, Value] = {}
        self.per_sample: dict[Value, Value] = {}
        self.fixed: list[tuple[str, Value]] = []
        self.divisors: dict[tuple[TensorOp, tuple[Axis | Value, ...]], Value] = {}
        for name, value in loss.inputs:
            self.in_prologue[value] = self.prologue.input(name, value.type)
            self.in_part[value] = self.part.input(name, value.type)
            self.forms[value] = Form.FIXED if name.startswith(CAPTURED) else Form.ROWS
            if name == f"{NEW}version":
                self.forms[value] = Form.FIXED

    def run(self) -> tuple[Graph, Graph]:
        loss = self.loss.outputs[0][1]
        for node in _needed(self.loss, loss):
            form = self._form(node)
            self.forms.update(dict.fromkeys(node.results, form))
            if form is Form.FIXED:
                self._copy(self.prologue, self.in_prologue, node)
                if isinstance(node.op, Constant):
                    self._copy(self.part, self.in_part, node)
            elif self._divides(node):
                self._divide(node)
            else:
                self._copy(self.part, self.in_part, node)
        if self.forms[loss] is not Form.SHARE:
            raise _TwoPasses("the loss isn't a reduction over rows", self.loss.nodes[-1].loc)
        part = self.part.finish([("loss", self.in_part[loss])])
        return _read(self.prologue.finish(self.fixed)), _read(part)

    def _form(self, node: Node) -> Form:
        forms = [self.forms[arg] for arg in node.args]
        if all(form is Form.FIXED for form in forms):
            return Form.FIXED
        name = node.op.name
        if not isinstance(node.op, TensorOp):
            raise _TwoPasses(f"{name} depends on the model", node.loc)
        if Form.SHARE in forms:
            return self._of_shares(node, forms)
        if node.op.per in (Per.TOKEN, Per.SAMPLE) and _has_rows(node):
            return Form.ROWS
        if self._divides(node) and forms[0] is Form.ROWS and Form.ROWS not in forms[1:]:
            return Form.SHARE
        raise _TwoPasses(f"{name} looks beyond single sequences", node.loc)

    def _of_shares(self, node: Node, forms: list[Form]) -> Form:
        name = node.op.name
        if name in LINEAR and set(forms) == {Form.SHARE}:
            return Form.SHARE
        scaled = name == "mul" and sorted(f.name for f in forms) == ["FIXED", "SHARE"]
        divided = name == "div" and forms == [Form.SHARE, Form.FIXED]
        if scaled or divided:
            return Form.SHARE
        raise _TwoPasses(f"{name} of a reduced loss isn't a sum over rows", node.loc)

    def _divides(self, node: Node) -> bool:
        return isinstance(node.op, TensorOp) and node.op.splits

    def _copy(self, builder: GraphBuilder, mine: dict[Value, Value], node: Node) -> None:
        if builder is self.part:
            self._bring(node.args)
        results = builder.add(node.op, [mine[arg] for arg in node.args], node.loc)
        mine.update(zip(node.results, results, strict=True))

    def _bring(self, values: Iterable[Value]) -> None:
        """Make fixed values of the prologue inputs of the part."""
        for value in values:
            if value not in self.in_part:
                name = f"{FIXED}{len(self.fixed)}"
                self.fixed.append((name, self.in_prologue[value]))
                self.in_part[value] = self.part.input(name, value.type)

    def _divide(self, node: Node) -> None:
        """Add `<name>_total` of the rows to the part, over `<name>_divisor` of them all."""
        assert isinstance(node.op, TensorOp)
        self._bring(node.args)
        (total,) = self.part.add(
            _piece(node.op, "total"), [self.in_part[a] for a in node.args], node.loc
        )
        div = TensorOp("arithmetic:div", Signature.parse("f32[], f32[] -> f32[]"), Per.TOKEN)
        args = [total, self._divisor(node, node.op)]
        (self.in_part[node.results[0]],) = self.part.add(div, args, node.loc)

    def _divisor(self, node: Node, op: TensorOp) -> Value:
        """Return the input of the part that holds the divisor; equal ones are computed once."""
        over = node.args[1:] or node.args[:1]
        divisor_op = _piece(op, "divisor", skip=1 if len(node.args) > 1 else 0)
        shape = over[0].axes if len(node.args) == 1 else over
        key = (divisor_op, shape)
        if key not in self.divisors:
            like = [self._shape(value, node) for value in over]
            (divisor,) = self.prologue.add(divisor_op, like, node.loc)
            name = f"{FIXED}{len(self.fixed)}"
            self.fixed.append((name, divisor))
            self.divisors[key] = self.part.input(name, divisor.type)
        return self.divisors[key]

    def _shape(self, value: Value, node: Node) -> Value:
        """Return a value of the prologue in the shape of `value`, whose elements aren't read."""
        if value in self.in_prologue:
            return self.in_prologue[value]
        for name, given in self.loss.inputs:
            if name.startswith(NEW) and given.axes == value.axes:
                return self.in_prologue[given]
            if name.startswith(NEW) and given.axes[:-1] == value.axes:
                if given not in self.per_sample:
                    args = [self.in_prologue[given]]
                    (self.per_sample[given],) = self.prologue.add(WITHOUT_LAST, args, node.loc)
                return self.per_sample[given]
        raise _TwoPasses(f"{node.op.name} counts rows of {value.type}", node.loc)


def _read(graph: Graph) -> Graph:
    """Return the graph without the inputs that it doesn't read."""
    used = used_inputs(graph)
    return attrs.evolve(graph, inputs=tuple(pair for pair in graph.inputs if pair[0] in used))


def _piece(op: TensorOp, name: str, skip: int = 0) -> TensorOp:
    rule = op.signature
    args = tuple(Pattern("any", p.names) for p in rule.args[skip:]) if skip else rule.args
    if name == "divisor" and not skip:
        args = tuple(Pattern("number", p.names) for p in rule.args)
    signature = Signature(args, rule.results, rule.names[skip:])
    return attrs.evolve(op, function=f"{op.function}_{name}", signature=signature, splits=False)


def _needed(graph: Graph, output: Value) -> list[Node]:
    live = {output}
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.results):
            live.update(node.args)
    return [node for node in graph.nodes if not live.isdisjoint(node.results)]


def _has_rows(node: Node) -> bool:
    """Whether all results keep the axis of rows: one above the tokens, or deeper."""
    inputs = [arg.type for arg in node.args if isinstance(arg.type, TensorType)]
    deepest = max(len(type.axes) for type in inputs)
    outputs = [value.type for value in node.results if isinstance(value.type, TensorType)]
    return all(len(type.axes) >= max(1, deepest - 1) for type in outputs)
