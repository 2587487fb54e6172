"""Immutable graphs in static single assignment form."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from numbers import Real
from typing import Any, ClassVar, NoReturn, Protocol

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.types import Axis, ModelType, Origin, TensorType, Type

UNPLACED = ""
"""The pool of everything until `place` has run."""

CAPTURED = "outer."
"""How the inputs of a nested graph are named that come from the graph around it."""

NEW = "new."
"""How the inputs of a loss are named that the forward pass of its update gives."""

FIXED = "fixed."
"""How the inputs of a loss's part are named that its prologue gives."""


class Op(ABC):
    """One kind of node. Subclasses are frozen attrs classes; their fields are the attributes."""

    results: ClassVar[tuple[str, ...]] = ()
    """Names of the results, if there are several of a fixed number."""
    effect: ClassVar[bool] = False
    """Whether it acts on the world: never left out, never merged with another."""
    consumes: ClassVar[tuple[int, ...]] = ()
    """Which arguments are models that no other node may use afterwards."""
    shares_captures: ClassVar[bool] = False
    """Whether its nested graphs all capture the same arguments, rather than each its own."""

    @abstractmethod
    def infer(self, *types: Any) -> tuple[Type, ...]:
        """Return the result types for these argument types, or raise TypeRuleError."""

    @property
    def name(self) -> str:
        """The name that is printed: GroupAdvantage -> group_advantage."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def attributes(self) -> Mapping[str, Any]:
        """Return what is printed in braces: fields with a `repr` that aren't at their default."""
        fields = attrs.fields(type(self))  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields if field.repr}
        defaults = {field.name: field.default for field in fields}
        return {
            name: value
            for name, value in values.items()
            if not isinstance(value, Graph) and value != defaults[name]
        }

    def regions(self) -> Mapping[str, "Graph"]:
        """Return the nested graphs by field name."""
        return {
            name: value
            for name in _field_names(type(self))
            if isinstance(value := getattr(self, name), Graph)
        }

    def captures(self) -> int:
        """Return how many of the last arguments are captured by the nested graphs."""
        counts = [graph.captures() for graph in self.regions().values()]
        return max(counts, default=0) if self.shares_captures else sum(counts)

    def captured(self, region: str, args: "tuple[Value, ...]") -> "tuple[Value, ...]":
        """Return the arguments that are the inputs `outer.0`, `outer.1`, ... of a region."""
        start = len(args) - self.captures()
        if self.shares_captures:
            return args[start:]
        for name, graph in self.regions().items():
            end = start + graph.captures()
            if name == region:
                return args[start:end]
            start = end
        raise KeyError(region)

    def consumed(self, count: int) -> tuple[int, ...]:
        """Return which of `count` arguments are consumed."""
        return self.consumes

    def result_pool(self, index: int, pool: str) -> str:
        """Return where result `index` is when the node has run in `pool`."""
        return pool

    def result_names(self, count: int) -> tuple[str, ...]:
        """Return a name for each of `count` results."""
        return self.results if len(self.results) == count else tuple(map(str, range(count)))


@cache
def _field_names(op: type[Op]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(op))  # type: ignore[arg-type]


class Arithmetic(Protocol):
    """What operators on values mean; `flowrl.ops.tensor` supplies it."""

    def binary(self, name: str, a: Any, b: Any) -> "Value":
        """Return `a name b` for values or numbers."""
        ...

    def unary(self, name: str, a: "Value") -> "Value":
        """Return `name a`."""
        ...

    def constant(self, number: Real) -> "Value":
        """Return a number that is known while tracing, as a value."""
        ...

    def reduce(self, name: str, a: "Value", over: str | None, mask: "Value | None") -> "Value":
        """Return the reduction `name` of a over an axis, or over all of them."""
        ...


def _refuse(what: str, instead: str) -> Callable[..., NoReturn]:
    def method(self: "Value", *_: Any) -> NoReturn:
        raise ProgramError(
            f"Python `{what}` needs a value that is known now; got {self.type}, "
            "which is known only when the graph runs",
            where=Location.of_caller().excerpt(),
            hint=instead,
        )

    return method


def _binary(name: str, *, swap: bool = False) -> Callable[["Value", Any], "Value"]:
    def method(self: "Value", other: Any) -> "Value":
        a, b = (other, self) if swap else (self, other)
        return Value.arithmetic.binary(name, a, b)

    return method


@attrs.frozen(eq=False, repr=False)
class Value:
    """The result of a node or an input of a graph; a dictionary key by identity."""

    type: Type
    pool: str = UNPLACED
    arithmetic: ClassVar[Arithmetic]
    __array_ufunc__: ClassVar[None] = None
    """Lets numpy leave `array + value` to the value, which refuses it in its own words."""

    __add__, __radd__ = _binary("add"), _binary("add", swap=True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", swap=True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", swap=True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", swap=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", swap=True)
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __and__, __or__ = _binary("logical_and"), _binary("logical_or")
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], *_: Any) -> NoReturn:
        """Refuse torch's functions; a TypeError lets `tensor + value` try the value's own."""
        raise TypeError(
            f"torch's `{function.__name__}` takes tensors, and values have none until the graph "
            "runs; write ops of `flowrl.ops`, or make a function of tensors an op by `@fl.op(...)`"
        )

    def __repr__(self) -> str:
        return str(self.type)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The named axes; none of a number, or of what is no tensor."""
        return self.type.axes if isinstance(self.type, TensorType) else ()

    @property
    def origin(self) -> Origin | None:
        """Where log-probabilities come from; none of what is no log-probabilities."""
        return self.type.origin if isinstance(self.type, TensorType) else None

    def __eq__(self, other: object) -> "Value":  # type: ignore[override]
        return Value.arithmetic.binary("equal", self, other)

    def __ne__(self, other: object) -> "Value":  # type: ignore[override]
        return Value.arithmetic.binary("not_equal", self, other)

    def __neg__(self) -> "Value":
        return Value.arithmetic.unary("neg", self)

    def __invert__(self) -> "Value":
        return Value.arithmetic.unary("logical_not", self)

    __bool__ = _refuse(
        "if",
        "choose with `ops.where(condition, a, b)` or `ops.cond(...)`; "
        "for `and`, `or`, `not` write `&`, `|`, `~`",
    )
    __len__ = _refuse("len", "count with `ops.count(mask)`; sizes are known only when it runs")
    __iter__ = _refuse("for", "write whole-batch ops, or loop with `ops.scan(body, carry, xs)`")
    __getitem__ = _refuse("[]", "choose rows with `ops.select(x, where=condition)`")
    __setitem__ = _refuse("[] =", "make a new value with `ops.where(condition, a, b)`")
    __contains__ = _refuse("in", "compare, and reduce: `(x == 1).float().max()`")
    __float__ = _refuse("float", "keep it in the graph, or return it as a metric")
    __int__ = _refuse("int", "keep it in the graph, or return it as a metric")
    __index__ = _refuse("range", "loop with `ops.scan(body, carry, xs)`")

    def exp(self) -> "Value":
        """Return e to the power of each element."""
        return Value.arithmetic.unary("exp", self)

    def log(self) -> "Value":
        """Return the natural logarithm of each element."""
        return Value.arithmetic.unary("log", self)

    def abs(self) -> "Value":
        """Return the magnitude of each element."""
        return Value.arithmetic.unary("abs", self)

    def float(self) -> "Value":
        """Return the elements as f32; False is 0 and True is 1."""
        return Value.arithmetic.unary("float", self)

    def detach(self) -> "Value":
        """Return the same elements as constants of the gradient."""
        return Value.arithmetic.unary("detach", self)

    def sum(self, over: str | None = None, mask: "Value | None" = None) -> "Value":
        """Return the sum over the axis named `over`, or over all; a token axis needs a mask."""
        return Value.arithmetic.reduce("sum", self, over, mask)

    def mean(self, over: str | None = None, mask: "Value | None" = None) -> "Value":
        """Return the mean over the axis named `over`, or over all; a token axis needs a mask."""
        return Value.arithmetic.reduce("mean", self, over, mask)

    def std(self, over: str | None = None, mask: "Value | None" = None) -> "Value":
        """Return the deviation (n - 1) over the axis named `over`, or over all; one gives 0."""
        return Value.arithmetic.reduce("std", self, over, mask)

    def min(self, over: str | None = None, mask: "Value | None" = None) -> "Value":
        """Return the least element over the axis named `over`, or over all."""
        return Value.arithmetic.reduce("min", self, over, mask)

    def max(self, over: str | None = None, mask: "Value | None" = None) -> "Value":
        """Return the greatest element over the axis named `over`, or over all."""
        return Value.arithmetic.reduce("max", self, over, mask)


class Model(Value):
    """One version of a model in a program: a linear value, consumed by `update`."""

    @property
    def role(self) -> str:
        """The role that the program's argument gave it."""
        assert isinstance(self.type, ModelType)
        return self.type.role


def new_value(type: Type, pool: str = UNPLACED) -> Value:
    """Return a new value of `type`."""
    return (Model if isinstance(type, ModelType) else Value)(type, pool)


@attrs.frozen(eq=False)
class Node:
    """One application of an op."""

    op: Op
    args: tuple[Value, ...]
    results: tuple[Value, ...]
    loc: Location
    pool: str = UNPLACED

    @property
    def own_args(self) -> tuple[Value, ...]:
        """The arguments that aren't captured by nested graphs."""
        return self.args[: len(self.args) - self.op.captures()]


@attrs.frozen(eq=False)
class Graph:
    """A named function: inputs, nodes in execution order, outputs; both ends are named."""

    name: str
    inputs: tuple[tuple[str, Value], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Value], ...]
    params: tuple[tuple[str, Any], ...] = ()
    """Hyperparameters that the program was traced with, for printing."""

    def input(self, name: str) -> Value:
        """Return the input called `name`."""
        return dict(self.inputs)[name]

    def captures(self) -> int:
        """Return how many inputs are captured from the graph around this one."""
        return sum(name.startswith(CAPTURED) for name, _ in self.inputs)

    def nested(self) -> "list[Graph]":
        """Return this graph and all graphs inside it, outermost first."""
        inner = [region for node in self.nodes for region in node.op.regions().values()]
        return [self, *(graph for region in inner for graph in region.nested())]

    def walk(self) -> Iterator[Node]:
        """Yield the nodes of this graph and of all graphs inside it, outermost first."""
        for graph in self.nested():
            yield from graph.nodes
