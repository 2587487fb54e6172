"""Programs: Python functions of models, data and carried values, traced once into a graph."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, get_type_hints

import attrs

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Graph, Model, Value
from flowrl.ir.records import DATA, Prompts, flatten, leaf_names, same_structure
from flowrl.ir.trace import building, located
from flowrl.ir.types import DType, ModelType, TensorType, boolean, f32, i32


class Carry(Value):
    """A value carried from step to step, written as an argument with its first value.

    `def program(policy: fl.Model, prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.0))`.
    The first value is a number, or nested tuples, lists or dicts of numbers. The program returns
    the next value in the place of the argument, among the models.
    """

    def __init__(self, initial: Any) -> None:
        super().__init__(f32())
        object.__setattr__(self, "initial", initial)

    initial: Any


class Kind(StrEnum):
    """What an argument of a program is."""

    MODEL = "model"
    DATA = "data"
    CARRY = "carry"


@attrs.frozen
class Input:
    """One positional argument of a program.

    Attributes:
        name: as written; the role of a model.
        kind: model, data or carry.
        data: for data, `Prompts`, `Examples` or `Pairs`.
        initial: for a carry, its first value.
    """

    name: str
    kind: Kind
    data: str = ""
    initial: Any = None


@attrs.frozen(eq=False)
class Traced:
    """A program as a graph: the first stage."""

    program: "Program"
    graph: Graph
    hyperparameters: Mapping[str, Any]
    sampling: Mapping[str, Mapping[str, Any]]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The program's positional arguments."""
        return self.program.inputs


class Program:
    """A function decorated with `@fl.program`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.signature = inspect.signature(function)
        self.loc = Location(function.__code__.co_filename, function.__code__.co_firstlineno)
        self.inputs = tuple(self._inputs())

    def __call__(self, *args: Any, **hyperparameters: Any) -> Any:
        """Run eagerly on concrete values of a session."""
        return self.function(*args, **hyperparameters)

    def defaults(self) -> dict[str, Any]:
        """Return the hyperparameters, which are the keyword-only arguments, and their defaults."""
        parameters = self.signature.parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def trace(
        self,
        hyperparameters: Mapping[str, Any] | None = None,
        sampling: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Traced:
        """Return the program as a graph.

        Args:
            hyperparameters: values of keyword-only arguments; the others keep their defaults.
            sampling: for a role, `temperature`, `top_p` and `top_k` where the program is silent.

        Raises:
            ProgramError: the program breaks a rule of the language.
        """
        params = self._params(hyperparameters or {})
        builder = GraphBuilder(self.name)
        args = [self._argument(builder, spec) for spec in self.inputs]
        with building(builder, sampling or {}):
            result = self.function(*args, **params)
            with located(self.loc):
                outputs = self._outputs(result, dict(zip(self.inputs, args, strict=True)), builder)
        return Traced(self, builder.finish(outputs, params), params, sampling or {})

    def _params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = self.defaults()
        for name in given:
            if name not in known:
                raise ProgramError(
                    f"`{self.name}` has no hyperparameter `{name}`{nearest(name, known)}; "
                    f"it has {', '.join(known) or 'none'}",
                    where=f"  {self.loc}",
                    hint="hyperparameters are the keyword-only arguments of the program",
                )
        params = {**known, **given}
        missing = [name for name, value in params.items() if value is inspect.Parameter.empty]
        if missing:
            raise ProgramError(
                f"`{self.name}` needs a value of `{missing[0]}`",
                where=f"  {self.loc}",
                hint=f"give it a default, or set it: `[program] {missing[0]} = ...`",
            )
        return params

    def _inputs(self) -> Sequence[Input]:
        try:
            hints = get_type_hints(self.function)
        except NameError as error:
            raise self._refuse(f"an annotation cannot be resolved: {error}") from None
        inputs = []
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise self._refuse(f"`*{p.name}` isn't allowed: inputs are known by name")
            if p.kind is not p.KEYWORD_ONLY:
                inputs.append(self._input(p, hints.get(p.name)))
        return inputs

    def _input(self, p: inspect.Parameter, hint: Any) -> Input:
        if hint is Model:
            return Input(p.name, Kind.MODEL)
        data = next((name for name, cls in DATA.items() if hint is cls), None)
        if data:
            return Input(p.name, Kind.DATA, data)
        if hint is Carry:
            if not isinstance(p.default, Carry):
                raise self._refuse(f"`{p.name}: fl.Carry` needs a first value: `= fl.Carry(0.0)`")
            return Input(p.name, Kind.CARRY, initial=p.default.initial)
        raise self._refuse(
            f"argument `{p.name}` must be annotated `fl.Model`, `fl.Prompts`, `fl.Examples`, "
            f"`fl.Pairs` or `fl.Carry`; got {getattr(hint, '__name__', hint)}"
        )

    def _refuse(self, problem: str) -> ProgramError:
        hint = "positional arguments flow through the graph; hyperparameters come after `*`"
        return ProgramError(f"`{self.name}`: {problem}", where=self.loc.excerpt(), hint=hint)

    def _argument(self, builder: GraphBuilder, spec: Input) -> Any:
        if spec.kind is Kind.MODEL:
            return builder.input(spec.name, ModelType(spec.name))
        if spec.kind is Kind.DATA:
            return _data(builder, spec, self.loc)
        leaves, unflatten = flatten(spec.initial)
        names = leaf_names(spec.initial)
        dotted = [f"{spec.name}.{name}" if name else spec.name for name in names]
        assert len(leaves) == len(names)
        return unflatten([builder.input(name, f32()) for name in dotted])

    def _outputs(
        self, result: Any, args: Mapping[Input, Any], builder: GraphBuilder
    ) -> list[tuple[str, Value]]:
        items = list(result) if isinstance(result, tuple) else [result]
        metrics = items.pop() if items and isinstance(items[-1], dict) else {}
        metrics = metrics | {k: v.mean() for k, v in builder.rewards.items() if k not in metrics}
        expected = [spec for spec in args if spec.kind is not Kind.DATA]
        outputs: list[tuple[str, Value]] = []
        for item in items:
            spec = self._place_of(item, expected, args)
            expected = expected[expected.index(spec) + 1 :]
            prefix = [f"{spec.name}.{n}" if n else spec.name for n in leaf_names(item)]
            outputs += zip(prefix, flatten(item)[0], strict=True)
        returned = {name.split(".")[0] for name, _ in outputs}
        for spec in args:
            if spec.kind is Kind.CARRY and spec.name not in returned:
                raise self._refuse(f"the next value of `{spec.name}` is never returned")
        return outputs + [(f"metrics.{name}", self._metric(name, v)) for name, v in metrics.items()]

    def _place_of(self, item: Any, expected: Sequence[Input], args: Mapping[Input, Any]) -> Input:
        for spec in expected:
            if isinstance(item, Model):
                if spec.kind is Kind.MODEL and spec.name == item.role:
                    return spec
            elif spec.kind is Kind.CARRY and same_structure(item, args[spec]):
                return spec
        order = ", ".join(f"`{spec.name}`" for spec in args if spec.kind is not Kind.DATA)
        what = f"`{item.role}`" if isinstance(item, Model) else f"a {type(item).__name__}"
        raise self._refuse(
            f"returns {what} where none is expected: models and carried values are returned "
            f"in the order of the arguments ({order}), then a dict of metrics"
        )

    def _metric(self, name: str, value: Any) -> Value:
        if isinstance(value, int | float):
            return Value.arithmetic.unary("constant", value)  # type: ignore[arg-type]
        if not isinstance(value, Value) or not isinstance(value.type, TensorType):
            raise self._refuse(f"metric `{name}` must be a number; got {type(value).__name__}")
        if value.type.axes and [axis.name for axis in value.type.axes] != ["turn"]:
            raise self._refuse(f"metric `{name}` must be f32[]; got {value.type}: reduce it first")
        if value.type.axes:
            last = name.rpartition("_")[2]
            return Value.arithmetic.reduce(last if last in ("min", "max") else "mean", value, None, None)
        return value


def _data(builder: GraphBuilder, spec: Input, loc: Location) -> Any:
    row = "example" if spec.data == "Examples" else "prompt"
    first = builder.axis(row, spec.name, loc)
    context = builder.axis("context", spec.name, loc)
    rows = TensorType(DType.ROW, (first,))
    prompts = Prompts(
        builder.input(f"{spec.name}.context", i32(first, context)),
        builder.input(f"{spec.name}.rows", rows),
    )
    builder.rows[first] = prompts.rows
    if spec.data == "Prompts":
        return prompts
    pair = (builder.axis("sample", spec.name, loc),) if spec.data == "Pairs" else ()
    axes = (first, *pair, builder.axis("token", spec.name, loc))
    tokens = builder.input(f"{spec.name}.tokens", i32(*axes))
    return DATA[spec.data](prompts, tokens, builder.input(f"{spec.name}.mask", boolean(*axes)))


def program(function: Callable[..., Any]) -> Program:
    """Make a function of models, data and carried values a program.

    Positional arguments are annotated `fl.Model`, `fl.Prompts`, `fl.Examples`, `fl.Pairs` or
    `fl.Carry`; keyword-only ones are hyperparameters. It returns the next versions of its models
    and carried values in the order of its arguments, then a dict of metrics.

    Raises:
        ProgramError: an argument is annotated otherwise.
    """
    return Program(function)
