"""Programs: Python functions of models, data and carried values, traced once into a graph."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from numbers import Real
from typing import Any, get_type_hints

import attrs

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.correction import Correction
from flowrl.ir.graph import Graph, Model, Value
from flowrl.ir.records import DATA, Buffer, Prompts, flatten, leaf_names, same_structure, shown
from flowrl.ir.trace import building, located
from flowrl.ir.types import DType, ModelType, TensorType, boolean, f32, i32

ARGUMENTS = "positional arguments flow through the graph; hyperparameters come after `*`"
RETURNS = "write `return policy, {'reward': rewards.mean()}`"
OVER_TURNS = {"_min": "min", "_max": "max", "_logprob_gap_mean": "max"}
"""What becomes of a metric's turns, by the end of its name; else their mean. Only the turns that
train the version which sampled have a gap to its engine: the others have 0."""


class Carry(Value):
    """A value carried from step to step, written as an argument with its first value.

    `def program(policy: fl.Model, prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.0))`.
    The first value is a number, nested tuples, lists or dicts of numbers, or an `fl.Buffer()` of
    rows. The program returns the next value in the place of the argument, among the models.
    """

    def __init__(self, initial: Any) -> None:
        bad = [leaf for leaf in flatten(initial)[0] if not isinstance(leaf, Real)]
        if bad and not isinstance(initial, Buffer):
            raise ProgramError(
                f"fl.Carry: a first value must be a number; got {shown(bad[0])}",
                where=Location.of_caller().excerpt(),
                hint="`fl.Carry(0.0)`, numbers in tuples, lists and dicts, "
                "or `fl.Carry(fl.Buffer())`",
            )
        super().__init__(f32())
        object.__setattr__(self, "initial", initial)

    initial: Any


class InputKind(StrEnum):
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
    kind: InputKind
    data: str = ""
    initial: Any = attrs.field(default=None, eq=False)


@attrs.frozen(eq=False)
class Trace:
    """What tracing a program gives: its graph, and what it was traced with."""

    program: "Program"
    graph: Graph
    hyperparameters: Mapping[str, Any]
    sampling: Mapping[str, Mapping[str, Any]]
    reward_models: Collection[str] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The program's positional arguments, then the models of rewards that it scores by."""
        known = dict(self.graph.inputs)
        scored = [Input(name, InputKind.MODEL) for name in self.reward_models if name in known]
        return (*self.program.inputs, *scored)


class Program:
    """A function decorated with `@fl.program`."""

    def __init__(
        self, function: Callable[..., Any], correction: Mapping[str, Any] | None = None
    ) -> None:
        self.function, self.correction = function, correction
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.signature = inspect.signature(function)
        self.loc = Location.of_function(function)
        self.inputs = tuple(self._inputs())

    def __call__(self, *args: Any, **hyperparameters: Any) -> Any:
        """Run eagerly on concrete values of a session; each call is a step of it."""
        leaves = flatten(args)[0]
        session = next((leaf.session for leaf in leaves if hasattr(leaf, "session")), None)
        if session is not None:
            session.begin()
            session.correction = self._correction()
        return self.function(*args, **hyperparameters)

    def corrected(self, options: Mapping[str, Any]) -> "Program":
        """Return the program with weights on its policy gradient; see `fl.corrected`."""
        return Program(self.function, options)

    def defaults(self) -> dict[str, Any]:
        """Return the hyperparameters, which are the keyword-only arguments, and their defaults."""
        parameters = self.signature.parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def trace(
        self,
        hyperparameters: Mapping[str, Any] | None = None,
        sampling: Mapping[str, Mapping[str, Any]] | None = None,
        reward_models: Collection[str] = (),
    ) -> Trace:
        """Return the program as a graph.

        Args:
            hyperparameters: values of keyword-only arguments; the others keep their defaults.
            sampling: for a role, `temperature`, `top_p`, `top_k` and `min_tokens` where the
                program is silent.
            reward_models: the names of rewards that models give; those that the program scores by
                become inputs of the graph.

        Raises:
            ProgramError: the program breaks a rule of the language.
        """
        params = self._params(hyperparameters or {})
        builder = GraphBuilder(self.name)
        builder.correction = self._correction()
        args = [self._argument(builder, spec) for spec in self.inputs]
        builder.sampling, builder.reward_models = sampling or {}, reward_models
        with building(builder):
            result = self.function(*args, **params)
            self._check_corrected(builder.correction)
            with located(self.loc):
                outputs = self._outputs(result, dict(zip(self.inputs, args, strict=True)), builder)
        graph = builder.finish(outputs, params)
        return Trace(self, graph, params, sampling or {}, reward_models)

    def _correction(self) -> Correction | None:
        return None if self.correction is None else Correction(self.correction)

    def _check_corrected(self, correction: Correction | None) -> None:
        if correction is not None and not correction.terms:
            raise self._refuse(
                "is to be corrected, but no update of the model that sampled has a policy gradient",
                "leave the correction out: it weighs terms such as `ops.clipped_surrogate`",
            )

    def _params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = self.defaults()
        for name in given:
            if name not in known:
                raise ProgramError(
                    f"`{self.name}` has no hyperparameter `{name}`{nearest(name, known)}; "
                    f"it has {', '.join(known) or 'none'}",
                    where=self.loc.excerpt(),
                    hint="hyperparameters are the keyword-only arguments of the program",
                )
        params = {**known, **given}
        missing = [name for name, value in params.items() if value is inspect.Parameter.empty]
        if missing:
            raise ProgramError(
                f"`{self.name}` needs a value of `{missing[0]}`",
                where=self.loc.excerpt(),
                hint=f"give it a default, or set it: `[program] {missing[0]} = ...`",
            )
        return params

    def _inputs(self) -> Sequence[Input]:
        try:
            hints = get_type_hints(self.function)
        except (NameError, AttributeError) as error:
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
            return Input(p.name, InputKind.MODEL)
        data = next((name for name, cls in DATA.items() if hint is cls), None)
        if data:
            return Input(p.name, InputKind.DATA, data)
        if hint is Carry:
            if not isinstance(p.default, Carry):
                raise self._refuse(
                    f"`{p.name}: fl.Carry` needs a first value",
                    f"write `{p.name}: fl.Carry = fl.Carry(0.0)`",
                )
            return Input(p.name, InputKind.CARRY, initial=p.default.initial)
        raise self._refuse(
            f"argument `{p.name}` must be annotated `fl.Model`, `fl.Prompts`, `fl.Examples`, "
            f"`fl.Pairs` or `fl.Carry`; got {getattr(hint, '__name__', 'none')}"
        )

    def _refuse(
        self, problem: str, hint: str = ARGUMENTS, made: Iterable[str] = ()
    ) -> ProgramError:
        where = self.loc.excerpt()
        return ProgramError(f"`{self.name}`: {problem}", where=where, made=made, hint=hint)

    def _argument(self, builder: GraphBuilder, spec: Input) -> Any:
        if spec.kind is InputKind.MODEL:
            return builder.input(spec.name, ModelType(spec.name))
        if spec.kind is InputKind.DATA:
            return _data(builder, spec, self.loc)
        if isinstance(spec.initial, Buffer):
            return Buffer(spec.name)
        unflatten = flatten(spec.initial)[1]
        return unflatten([builder.input(n, f32()) for n in leaf_names(spec.initial, spec.name)])

    def _outputs(
        self, result: Any, args: Mapping[Input, Any], builder: GraphBuilder
    ) -> list[tuple[str, Value]]:
        items = list(result) if isinstance(result, tuple) else [result]
        metrics = items.pop() if items and isinstance(items[-1], dict) else {}
        metrics = metrics | _unreported(metrics, builder)
        for name in metrics:
            if not isinstance(name, str):
                raise self._refuse(f"a metric's name must be a string; got {name!r}", RETURNS)
        expected = [spec for spec in args if spec.kind is not InputKind.DATA]
        outputs: list[tuple[str, Value]] = []
        returned: list[Input] = []
        for item in items:
            spec = self._place_of(item, expected, args)
            returned.append(spec)
            expected = expected[expected.index(spec) + 1 :]
            if isinstance(item, Buffer):
                outputs += self._rows(item)
                continue
            leaves = [self._carried(spec, leaf, builder) for leaf in flatten(item)[0]]
            outputs += zip(leaf_names(item, spec.name), leaves, strict=True)
        for spec in args:
            if spec.kind is InputKind.CARRY and spec not in returned:
                raise self._refuse(
                    f"the next value of `{spec.name}` is never returned",
                    "return it in the place of the argument: "
                    f"`return policy, {spec.name}, metrics`",
                )
        measured = {name: self._metric(name, value, builder) for name, value in metrics.items()}
        return outputs + [(f"metrics.{name}", value) for name, value in measured.items()]

    def _rows(self, buffer: Buffer) -> list[tuple[str, Value]]:
        """Return the rows of a carried buffer, by name."""
        if buffer.empty:  # it is returned as it came, and nothing is carried
            return []
        names = leaf_names(buffer.rows, buffer.name)
        return list(zip(names, flatten(buffer.rows)[0], strict=True))

    def _carried(self, spec: Input, value: Any, builder: GraphBuilder) -> Value:
        """Return a model's next version or a carried number, as a value."""
        if isinstance(value, Real):
            return Value.arithmetic.constant(value)
        wanted = ModelType(spec.name) if spec.kind is InputKind.MODEL else f32()
        if not isinstance(value, Value) or value.type != wanted:
            raise self._refuse(
                f"the next value of `{spec.name}` must be {wanted}; got {shown(value)}",
                "return a model as `ops.update` made it, and carried values as numbers: `x.mean()`",
                builder.made_here(value),
            )
        return value

    def _place_of(self, item: Any, expected: Sequence[Input], args: Mapping[Input, Any]) -> Input:
        for spec in expected:
            if isinstance(item, Model):
                if spec.kind is InputKind.MODEL and spec.name == item.role:
                    return spec
            elif isinstance(item, Buffer):
                if item.name == spec.name:
                    return spec
            elif spec.kind is InputKind.CARRY and same_structure(item, args[spec]):
                return spec
        order = ", ".join(f"`{spec.name}`" for spec in args if spec.kind is not InputKind.DATA)
        what = f"`{item.role}`" if isinstance(item, Model) else shown(item)
        raise self._refuse(
            f"returns {what} where none is expected: models and carried values are returned "
            f"in the order of the arguments ({order}), then a dict of metrics",
            RETURNS,
        )

    def _metric(self, name: str, value: Any, builder: GraphBuilder) -> Value:
        """Return a metric as a scalar: one number a turn of a scan as `OVER_TURNS` says."""
        if isinstance(value, Real):
            return Value.arithmetic.constant(value)
        axes = value.axes if isinstance(value, Value) else ()
        per_turn = [axis.name for axis in axes] == ["turn"]
        scalar = isinstance(value, Value) and isinstance(value.type, TensorType) and not axes
        if not scalar and not per_turn:
            raise self._refuse(
                f"metric `{name}` must be f32[]; got {shown(value)}",
                "reduce it: `x.mean()`, or `ops.token_mean(x, rollouts.mask)`",
                builder.made_here(value),
            )
        own = f"_{name.rpartition('/')[2]}"
        kind = next((kind for end, kind in OVER_TURNS.items() if own.endswith(end)), "mean")
        number: Value = Value.arithmetic.reduce(kind, value, None, None) if per_turn else value
        return number


def _unreported(metrics: Mapping[Any, Any], builder: GraphBuilder) -> dict[str, Value]:
    """Return the mean of each reward, but those that the program returns itself."""
    given = [value for value in metrics.values() if isinstance(value, Value)]
    means = [node for node in builder.nodes if node.op.name == "mean"]
    known = {node.args[0] for node in means if any(node.results[0] is value for value in given)}
    rewards = builder.rewards.items()
    return {name: x.mean() for name, x in rewards if name not in metrics and x not in known}


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
