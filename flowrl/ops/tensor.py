"""Tensor ops: pure functions of `flowrl.functional` made into nodes; arithmetic on values."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from numbers import Real
from typing import Any

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Op, Value
from flowrl.ir.signature import Signature, TypeRuleError
from flowrl.ir.trace import bind, builder_of
from flowrl.ir.types import Origin, TensorType, Type, f32
from flowrl.ops.expect import ordered


class Per(StrEnum):
    """The smallest unit whose result needs no other: how an op may be split over rows."""

    TOKEN = "token"
    SAMPLE = "sample"
    GROUP = "group"
    BATCH = "batch"


class Rule(StrEnum):
    """What log-probabilities among the first arguments must share."""

    NONE = "none"
    SAME_DISTRIBUTION = "same distribution"
    SAME_MODEL = "same model"
    KEEP = "keep"
    """Not a comparison: the result is what the argument is."""


@attrs.frozen
class TensorOp(Op):
    """A pure function of tensors.

    Attributes:
        function: `module:name` in `flowrl.functional`, or a user's `path.py:name`.
        signature: the type rule.
        per: the unit it computes over.
        params: its options.
        rule: what log-probabilities it may compare.
        compared: how many of the first arguments the rule is about.
        splits: whether it is `<name>_total` over rows divided by a `<name>_divisor` of the masks.
        code: for a user's function, a hash of its source.
        user: a user's function itself, where it is at hand.
        outputs: names of the results, if there are several.
        optional: whether the last argument is a term that may be left out where it is 0.
    """

    function: str = attrs.field(repr=False)
    signature: Signature = attrs.field(repr=False)
    per: Per = attrs.field(repr=False)
    params: tuple[tuple[str, Any], ...] = attrs.field(default=(), repr=False)
    rule: Rule = attrs.field(default=Rule.NONE, repr=False)
    compared: int = attrs.field(default=2, repr=False)
    splits: bool = attrs.field(default=False, repr=False)
    code: str = attrs.field(default="", repr=False)
    user: Callable[..., Any] | None = attrs.field(default=None, eq=False, repr=False)
    outputs: tuple[str, ...] = attrs.field(default=(), repr=False)
    optional: bool = attrs.field(default=False, repr=False)

    def result_names(self, count: int) -> tuple[str, ...]:
        """Return the names of several results."""
        return self.outputs or super().result_names(count)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.rpartition(":")[2]

    def attributes(self) -> Mapping[str, Any]:
        """Return the options that are set, and where a user's function is."""
        shown = {name: value for name, value in self.params if value is not None}
        return shown | ({"code": f"{self.function}#{self.code}"} if self.code else {})

    def replace(self, **params: Any) -> "TensorOp":
        """Return the op with other values of some options."""
        return attrs.evolve(self, params=tuple((dict(self.params) | params).items()))

    def infer(self, *types: Type) -> tuple[Type, ...]:
        """Apply the signature, then the rule on log-probabilities."""
        results = self.signature.infer(types)
        origins = [type.origin for type in types if isinstance(type, TensorType)]
        if self.rule is Rule.KEEP:
            return (attrs.evolve(results[0], origin=origins[0]),)
        if self.rule is not Rule.NONE:
            _check_origins(self.rule, self.signature.names, origins[: self.compared])
        return results


@attrs.frozen
class Constant(Op):
    """A number written in the program; printed where it is used."""

    value: float

    def infer(self) -> tuple[Type, ...]:
        """Nothing -> f32[]."""
        return (f32(),)


def _check_origins(rule: Rule, names: tuple[str, ...], origins: Sequence[Origin | None]) -> None:
    """Compare the first known origin with each of the others."""
    known = [(index, origin) for index, origin in enumerate(origins) if origin]
    for index, b in known[1:]:
        first, a = known[0]
        pair = f"`{names[first]}` and `{names[index]}`"
        if a.distribution != b.distribution:
            raise TypeRuleError(
                f"{pair} are log-probabilities of differently shaped "
                f"distributions, {{{a}}} and {{{b}}}: "
                "temperature, top_p, top_k and min_tokens must agree",
                arg=index,
                hint="`ops.logprobs(model, rollouts)` recomputes them at the temperature of the "
                "rollouts and without the others: compare two of these",
            )
        if rule is Rule.SAME_MODEL and a.model != b.model:
            raise TypeRuleError(
                f"{pair} must be of one model, in two versions; "
                f"got {{{a}}} and {{{b}}}: a ratio across models is not an importance weight",
                arg=index,
                hint="compare with the sampling policy's: `rollouts.logprobs`; "
                "between models use `ops.kl`",
            )


def apply(
    function: str,
    signature: str,
    per: Per,
    args: Mapping[str, Value | float],
    params: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Value:
    """Add a tensor op with one result; numbers among `args` become constants.

    `fields` are further fields of `TensorOp`.
    """
    return apply_many(function, signature, per, args, params, **fields)[0]


def apply_many(
    function: str,
    signature: str,
    per: Per,
    args: Mapping[str, Value | float],
    params: Mapping[str, Any] | None = None,
    **fields: Any,
) -> tuple[Value, ...]:
    """Add a tensor op with any number of results; see `apply`."""
    made = Signature.parse(signature, tuple(args))
    options = tuple((name, _frozen(value)) for name, value in (params or {}).items())
    node = TensorOp(function, made, per, options, **fields)
    return bind(node, *_values(node.name, list(args.values())))


def _values(name: str, args: list[Any]) -> list[Value]:
    builder = builder_of([arg for arg in args if isinstance(arg, Value)], name)
    return [arg if isinstance(arg, Value) else _constant(builder, name, arg) for arg in args]


def _frozen(option: Any) -> Any:
    return tuple(map(_frozen, option)) if isinstance(option, list | tuple) else option


def _constant(builder: GraphBuilder, name: str, number: Any) -> Value:
    loc = Location.of_caller()
    if not isinstance(number, Real):
        raise ProgramError(
            f"{name}: expected a value of the program or a number; got {type(number).__name__}",
            where=loc.excerpt(),
            hint="inside a program, tensors come from ops and from the program's arguments",
        )
    return builder.add(Constant(float(number)), (), loc)[0]


ELEMENTWISE = "number[...], number[...] -> f32[...]"
COMPARISON = "number[...], number[...] -> bool[...]"
LOGICAL = "bool[...], bool[...] -> bool[...]"
BINARY = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "minimum", "maximum"), ELEMENTWISE),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), COMPARISON),
    **dict.fromkeys(("equal", "not_equal"), COMPARISON),
    **dict.fromkeys(("logical_and", "logical_or"), LOGICAL),
}
UNARY = {
    **dict.fromkeys(("neg", "exp", "log", "abs", "float"), "number[...] -> f32[...]"),
    "detach": "f32[...] -> f32[...]",
    "logical_not": "bool[...] -> bool[...]",
}


class _Arithmetic:
    """What operators and methods of values do."""

    def binary(self, name: str, a: Any, b: Any) -> Value:
        rule = Rule.SAME_DISTRIBUTION if name == "sub" else Rule.NONE
        return apply(f"arithmetic:{name}", BINARY[name], Per.TOKEN, {"a": a, "b": b}, rule=rule)

    def unary(self, name: str, a: Value) -> Value:
        rule = Rule.KEEP if name == "detach" else Rule.NONE
        return apply(f"arithmetic:{name}", UNARY[name], Per.TOKEN, {"a": a}, rule=rule)

    def constant(self, number: Real) -> Value:
        return _values("constant", [number])[0]

    def reduce(self, name: str, a: Value, over: str | None, mask: Value | None) -> Value:
        inner = a.axes[-1].name if a.axes else ""
        function = f"arithmetic:{name}"
        inside = "over='token', " if over else ""
        if inner == "token" and over in (None, "token") and mask is None:
            raise ProgramError(
                f"{name}: a reduction of {a.type} over its tokens needs a mask; got none",
                where=Location.of_caller().excerpt(),
                hint=f"write `x.{name}({inside}mask=rollouts.mask)`",
            )
        if over is not None and over != inner:
            raise ProgramError(
                f"{name}: can reduce {a.type} over its last axis, or over all; got over={over!r}",
                where=Location.of_caller().excerpt(),
                hint=f"reduce the inner axes first: `x.{name}(over={inner!r}).{name}(...)`",
            )
        options = {"over": over}
        masks = {} if mask is None else {"mask": mask}
        last = f"..., {over}" if over else "..."
        args = f"number[{last}]" + (f", bool[{last}]" if masks else "")
        result = "f32[...]" if over else "f32[]"
        per = {None: Per.BATCH, "token": Per.SAMPLE}.get(over, Per.GROUP)
        splits = over is None and name in ("mean", "sum")
        signature = f"{args} -> {result}"
        return apply(function, signature, per, {"x": a, **masks}, options, splits=splits)


Value.arithmetic = _Arithmetic()


def where(condition: Value, a: Value | float, b: Value | float) -> Value:
    """Return `a` where `condition` holds, else `b`, element by element.

    Args:
        condition: bool[...].
        a: f32[...], or what is broadcast into it.
        b: likewise.

    Returns:
        f32[...].
    """
    signature = "bool[...], number[...], number[...] -> f32[...]"
    args = {"condition": condition, "a": a, "b": b}
    return apply("arithmetic:where", signature, Per.TOKEN, args)


def minimum(a: Value | float, b: Value | float) -> Value:
    """Return the smaller of each pair of elements, f32[...]; each may be a number."""
    return Value.arithmetic.binary("minimum", a, b)


def maximum(a: Value | float, b: Value | float) -> Value:
    """Return the greater of each pair of elements, f32[...]; each may be a number."""
    return Value.arithmetic.binary("maximum", a, b)


def clip(x: Value, low: float | None = None, high: float | None = None) -> Value:
    """Return the elements of `x`, f32[...], held to [low, high]; None is no bound."""
    ordered("clip", low, high, "both bound the elements")
    options = {"low": low, "high": high}
    return apply("arithmetic:clip", "f32[...] -> f32[...]", Per.TOKEN, {"x": x}, options)
