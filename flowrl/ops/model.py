"""Ops that run a model or the outside world; engines and reward workers perform them."""

from collections.abc import Callable
from typing import Any

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Graph, Model, Op, Value
from flowrl.ir.records import Prompts, Rollouts, fields_of
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.trace import bind, builder_of, sampling_of, trace_region
from flowrl.ir.types import (
    Axis,
    DType,
    ModelType,
    Origin,
    SelectionType,
    TensorType,
    Type,
    boolean,
    f32,
    i32,
)
from flowrl.ops.data import fresh_axes, take
from flowrl.ops.watch import watch


class ModelOp(Op):
    """An op whose first argument is a model."""

    use: str
    """`generate`, `train` or `score`: what the model is used for."""


def _model(type: Type) -> ModelType:
    if not isinstance(type, ModelType):
        raise TypeRuleError(f"the first argument must be a model; got {type}")
    return type


def _tokens(type: Type, arg: int) -> TensorType:
    if not isinstance(type, TensorType) or type.dtype is not DType.I32 or not type.axes:
        raise TypeRuleError(f"must be token ids, i32[..., token]; got {type}", arg=arg)
    return type


@attrs.frozen
class Generate(ModelOp):
    """See `generate`."""

    n: int
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int | None
    min_tokens: int | None
    stop: tuple[str, ...] | None
    axes: tuple[Axis, Axis] = attrs.field(repr=False)
    number: int = attrs.field(repr=False)
    use = "generate"
    results = ("tokens", "logprobs", "mask", "truncated", "version")

    def infer(self, model: Type, context: Type, rows: Type) -> tuple[Type, ...]:
        """model, i32[prompt, context], row[prompt] -> what `Rollouts` has."""
        policy, prompts = _model(model), _tokens(context, 1)
        samples = (*prompts.axes[:-1], self.axes[0])
        all_tokens = (*samples, self.axes[1])
        origin = Origin(
            policy.role, policy.version, self.temperature, self.top_p, self.top_k, sampled=True
        )
        logprobs = TensorType(DType.F32, all_tokens, origin)
        mask, truncated = boolean(*all_tokens), boolean(*samples)
        return i32(*all_tokens), logprobs, mask, truncated, i32(*samples)

    def attributes(self) -> dict[str, Any]:
        """Return what departs from plain sampling, and `n`."""
        plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
        shown = {k: v for k, v in super().attributes().items() if v != plain.get(k)}
        return {k: v for k, v in shown.items() if v is not None}


@attrs.frozen
class Logprobs(ModelOp):
    """See `logprobs`."""

    temperature: float
    use = "score"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[..., token]."""
        of, over = _model(model), _tokens(tokens, 2)
        return (TensorType(DType.F32, over.axes, Origin(of.role, of.version, self.temperature)),)

    def attributes(self) -> dict[str, Any]:
        """Return the temperature, unless it is 1."""
        return {} if self.temperature == 1 else {"temperature": self.temperature}


@attrs.frozen
class Values(ModelOp):
    """See `values`."""

    use = "score"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[..., token]."""
        _model(model)
        return (f32(*_tokens(tokens, 2).axes),)


@attrs.frozen
class Rewards(ModelOp):
    """The rewards that a model gives; see `score`."""

    per: str
    use = "score"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[...] or f32[..., token]."""
        _model(model)
        axes = _tokens(tokens, 2).axes
        return (f32(*axes) if self.per == "token" else f32(*axes[:-1]),)


@attrs.frozen
class Score(Op):
    """The rewards that functions of the run file give; see `score`."""

    functions: tuple[str, ...]
    role: str = attrs.field(repr=False)
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    reward: Axis | None = attrs.field(repr=False)
    effect = True
    results = ("rewards", "kept")

    def infer(self, rows: Type, tokens: Type) -> tuple[Type, ...]:
        """row[prompt], i32[prompt, sample, token] -> f32[prompt'2, sample'2], selection."""
        kept = SelectionType(self.axes)
        fresh = kept.rename(f32(*_tokens(tokens, 1).axes[:-1]))
        named = (*fresh.axes, self.reward) if self.reward else fresh.axes
        return f32(*named), kept


@attrs.frozen
class Update(ModelOp):
    """See `update`.

    Attributes:
        loss: the nested graph: inputs `new.*`, then captured values; outputs `loss`, then metrics.
        temperature: what the logits are divided by for `new.logprobs` and `new.entropy`.
        passes: 1 or 2, once the compiler has decided; 0 before.
        why: for two passes, what in the loss needs them.
        prologue: for one pass, what doesn't depend on `new`: computed once for the minibatch.
        part: for one pass, the share of some rows in the loss, given the prologue's outputs.
    """

    loss: Graph
    temperature: float
    passes: int = 0
    why: str = ""
    prologue: Graph | None = None
    part: Graph | None = None
    use = "train"
    consumes = (0,)
    shares_captures = True

    @property
    def reads(self) -> tuple[str, ...]:
        """The outputs of the model that the loss reads: `logprobs`, `entropy`, ..."""
        names = [n.removeprefix("new.") for n, _ in self.loss.inputs if n.startswith("new.")]
        return tuple(name for name in names if name != "version")

    def captured(self, region: str, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """All three graphs see the same captured values."""
        return args[len(args) - self.loss.captures() :] if self.loss.captures() else ()

    def result_names(self, count: int) -> tuple[str, ...]:
        """The model, and its statistics."""
        metrics = [name for name, _ in self.loss.outputs[1:]]
        return ("model", "loss", "grad_norm", "learning_rate", *metrics)

    def infer(self, model: Type, context: Type, tokens: Type, *captured: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token], captured -> model, f32[] statistics."""
        old = _model(model)
        if old.snapshot:
            raise TypeRuleError("a snapshot can't be trained", hint="update the model itself")
        statistics = (f32(),) * (2 + len(self.loss.outputs))
        return (attrs.evolve(old, version=old.version + 1), *statistics)

    def attributes(self) -> dict[str, Any]:
        """Return what is known about how it runs."""
        shown: dict[str, Any] = {"reads": self.reads}
        if self.temperature != 1:
            shown["temperature"] = self.temperature
        if self.passes:
            shown |= {"passes": self.passes} | ({"why": self.why} if self.why else {})
        return shown


@attrs.frozen
class Snapshot(ModelOp):
    """See `snapshot`."""

    use = "train"

    def infer(self, model: Type) -> tuple[Type, ...]:
        """model -> a frozen copy of it."""
        return (attrs.evolve(_model(model), snapshot=True),)


@attrs.frozen
class Ema(ModelOp):
    """See `ema`."""

    decay: float
    use = "train"
    consumes = (0,)

    def infer(self, target: Type, source: Type) -> tuple[Type, ...]:
        """model, model -> the first one's next version."""
        old = _model(target)
        _model(source)
        return (attrs.evolve(old, version=old.version + 1),)


def generate(
    policy: Model,
    prompts: Prompts,
    *,
    n: int = 1,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    stop: tuple[str, ...] | None = None,
) -> Rollouts:
    """Sample completions of each prompt.

    Args:
        policy: the model to sample from.
        prompts: i32[prompt, context].
        n: samples a prompt.
        temperature: what the logits are divided by; 0 is greedy. Here and below, None takes the
            run file's `[engines.<role>.generate]`, and that is 1 unless it says otherwise.
        top_p: sample from the likeliest tokens that hold this probability; 1 is off.
        top_k: sample from this many likeliest tokens; 0 is off.
        max_tokens: the limit of a sample's length, in tokens.
        min_tokens: no end before so many tokens.
        stop: strings that end a sample.

    Returns:
        Rollouts on the fresh axes `sample` and `token`.

    Raises:
        ProgramError: an option is out of range.
    """
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": 0} | dict(sampling_of(policy.role))
    given = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    chosen = {k: defaults[k] if v is None else v for k, v in given.items()}
    _check_sampling(n, **chosen)
    builder = builder_of([policy], "generate")
    loc = Location.of_caller()
    axes = (builder.axis("sample", "generate", loc), builder.axis("token", "generate", loc))
    number = builder.root.number("draw")
    op = Generate(
        n=n, **chosen, max_tokens=max_tokens, min_tokens=min_tokens, stop=stop, axes=axes,
        number=number,
    )  # fmt: skip
    return Rollouts(prompts, *bind(op, policy, prompts.context, prompts.rows))


def logprobs(model: Model, rollouts: Any, *, temperature: float | None = None) -> Value:
    """Return the log-probability of each token under a model, by a forward pass.

    Args:
        model: any language model with the tokenizer of the rollouts.
        rollouts: rollouts, examples, pairs or a record with their fields.
        temperature: what the logits are divided by; that of the rollouts by default.

    Returns:
        f32[prompt, sample, token], in nats, of the whole distribution (no top_p, no top_k).
    """
    op = Logprobs(_temperature(rollouts) if temperature is None else temperature)
    return bind(op, model, rollouts.prompts.context, rollouts.tokens)[0]


def values(critic: Model, rollouts: Any) -> Value:
    """Return the critic's value of the state before each token.

    Args:
        critic: a model with a value head.
        rollouts: rollouts or a record with their fields.

    Returns:
        f32[prompt, sample, token], in reward units.
    """
    return bind(Values(), critic, rollouts.prompts.context, rollouts.tokens)[0]


def score(
    by: str | Model, rollouts: Rollouts, *, per: str = "sample", names: tuple[str, ...] = ()
) -> tuple[Rollouts, Value]:
    """Return the rewards of rollouts, and the rollouts that have one.

    Args:
        by: the name of a reward of the run file, or a model with a reward head.
        rollouts: what to score.
        per: "sample", or "token" for a model with a token reward head.
        names: several rewards of the run file at once; `by` is then only a label.

    Returns:
        The rollouts on fresh axes, less the groups dropped for a failed reward, and
        f32[prompt, sample], with a last axis `reward` for `names`, or f32[prompt, sample, token].
        A model drops nothing: then the rollouts are the same.

    Raises:
        ProgramError: `per` is neither, or "token" from a function.
    """
    loc = Location.of_caller()
    if per not in ("sample", "token") or (per == "token" and isinstance(by, str)):
        raise ProgramError(
            f"score: `per` must be `sample`, or `token` for a model; got {per!r}",
            where=loc.excerpt(),
            hint="a reward function gives one number a completion",
        )
    if isinstance(by, Model):
        args = (by, rollouts.prompts.context, rollouts.tokens)
        return rollouts, bind(Rewards(per), *args)[0]
    builder = builder_of([rollouts.tokens], "score")
    pairs = fresh_axes(builder, [rollouts.prompts.rows, rollouts.tokens, rollouts.prompts.context], "score")
    origin = rollouts.logprobs.type.origin if isinstance(rollouts.logprobs.type, TensorType) else None
    axis = builder.axis("reward", "score", loc) if names else None
    op = Score(names or (by,), origin.model if origin else "", pairs, axis)
    rewards, kept = bind(op, rollouts.prompts.rows, rollouts.tokens)
    builder.rewards.setdefault(by, rewards)
    return take(builder, kept, rollouts), rewards


class New:
    """What a loss reads of the model being trained; only what is read is computed.

    `logprobs` f32[prompt, sample, token], `entropy` f32[prompt, sample, token] in nats,
    `values` f32[prompt, sample, token], `rewards` f32[prompt, sample].
    """

    def __init__(self, builder: GraphBuilder, model: ModelType, tokens: TensorType, temperature: float) -> None:
        origin = Origin(model.role, model.version, temperature)
        self._builder = builder
        self._types: dict[str, Type] = {
            "logprobs": TensorType(DType.F32, tokens.axes, origin),
            "entropy": f32(*tokens.axes),
            "values": f32(*tokens.axes),
            "rewards": f32(*tokens.axes[:-1]),
            "version": i32(),
        }
        self._read: dict[str, Value] = {}

    def read(self, name: str) -> Value:
        """Return an output of the model, as an input of the loss."""
        if name not in self._read:
            self._read[name] = self._builder.input(f"new.{name}", self._types[name])
        return self._read[name]

    def reads(self, name: str) -> bool:
        """Return whether the loss has read an output."""
        return name in self._read

    logprobs = property(lambda self: self.read("logprobs"))
    entropy = property(lambda self: self.read("entropy"))
    values = property(lambda self: self.read("values"))
    rewards = property(lambda self: self.read("rewards"))


def update(
    model: Model, loss: Callable[[New], Any], rollouts: Any
) -> tuple[Model, dict[str, Value]]:
    """Take one optimiser step on a loss and return the model's next version.

    The gradient is that of the loss over all rows of `rollouts` together, whatever the size of
    microbatches, the packing and the number of GPUs.

    Args:
        model: the version to train; it is used up.
        loss: a function of `new`, traced once: it returns f32[], or (f32[], metrics). It may use
            any value made before; those are constants.
        rollouts: rollouts, examples, pairs or a record with their fields.

    Returns:
        The next version, and statistics named `<role>/loss`, `<role>/grad_norm`, ...

    Raises:
        ProgramError: the loss isn't f32[], or doesn't depend on `new`.
    """
    builder = builder_of([model], "update")
    temperature = _temperature(rollouts)

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        tokens = rollouts.tokens.type
        assert isinstance(model.type, ModelType)
        new = New(inner, model.type, tokens, temperature)
        result = loss(new)
        value, metrics = result if isinstance(result, tuple) else (result, {})
        _check_loss(inner, value)
        return [("loss", value), *metrics.items(), *watch(inner, new, rollouts, value).items()]

    graph, captured = trace_region("loss", build, builder)
    op = Update(graph, temperature)
    results = bind(op, model, rollouts.prompts.context, rollouts.tokens, *captured)
    names = op.result_names(len(results))[1:]
    stats = {f"{model.role}/{n}": v for n, v in zip(names, results[1:], strict=True)}
    assert isinstance(results[0], Model)
    return results[0], stats


def snapshot(model: Model) -> Model:
    """Return a frozen copy of a version; the plan shows its memory."""
    (copy,) = bind(Snapshot(), model)
    assert isinstance(copy, Model)
    return copy


def ema(target: Model, source: Model, *, decay: float) -> Model:
    """Return the next version of `target`: decay * target + (1 - decay) * source.

    Args:
        target: is used up.
        source: a model of the same shape; it stays.
        decay: in [0, 1].

    Source: Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging".
    """
    if not 0 <= decay <= 1:
        raise ProgramError(
            f"ema: decay must be in [0, 1]; got {decay}",
            where=Location.of_caller().excerpt(),
            hint="0.99 keeps 99% of the target",
        )
    (averaged,) = bind(Ema(decay), target, source)
    assert isinstance(averaged, Model)
    return averaged


def _temperature(rollouts: Any) -> float:
    """Return the temperature that rollouts were sampled at; 1 for greedy ones and for data."""
    logprobs = fields_of(rollouts).get("logprobs")
    origin = logprobs.type.origin if logprobs is not None else None
    return origin.temperature or 1.0 if origin else 1.0


def _check_sampling(n: int, temperature: float, top_p: float, top_k: int) -> None:
    bad = None
    if n < 1:
        bad = f"n must be at least 1; got {n}"
    elif temperature < 0:
        bad = f"temperature must be at least 0; got {temperature}"
    elif not 0 < top_p <= 1:
        bad = f"top_p must be in (0, 1]; got {top_p}"
    elif top_k < 0:
        bad = f"top_k must be at least 0; got {top_k}"
    if bad:
        raise ProgramError(
            f"generate: {bad}",
            where=Location.of_caller().excerpt(),
            hint="temperature 0 is greedy; top_p 1 and top_k 0 are off",
        )


def _check_loss(inner: GraphBuilder, value: Any) -> None:
    where = Location.of_caller().excerpt()
    if not isinstance(value, Value) or value.type != f32():
        shown = value.type if isinstance(value, Value) else type(value).__name__
        raise ProgramError(
            f"update: the loss must be f32[]; got {shown}",
            where=where,
            hint="reduce it: `ops.token_mean(x, rollouts.mask)`",
        )
    if value not in depends_on_new(inner):
        raise ProgramError(
            "update: the loss has no gradient path to `new`: it would train nothing",
            where=where,
            hint="use `new.logprobs`, `new.entropy`, `new.values` or `new.rewards`, not detached",
        )


def depends_on_new(inner: GraphBuilder) -> set[Value]:
    """Return the values of a loss that a gradient reaches."""
    reached = {value for name, value in inner.inputs if name.startswith("new.")}
    for node in inner.nodes:
        if node.op.name != "detach" and not reached.isdisjoint(node.args):
            reached.update(v for v in node.results if v.type.dtype is DType.F32)  # type: ignore[union-attr]
    return reached

