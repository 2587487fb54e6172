"""Change a model: one optimizer step on a loss, a copy, an average."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import NEW, Model, Value
from flowrl.ir.records import RECORDS, shown
from flowrl.ir.trace import bind, builder_of, trace_region
from flowrl.ir.types import DType, ModelType, Origin, TensorType, Type, f32, i32
from flowrl.ops.correction import weighing
from flowrl.ops.expect import LOSS, expect, metric_names, outside_loss, refuse
from flowrl.ops.forward import temperature_of
from flowrl.ops.model import Ema, Snapshot, Update
from flowrl.ops.watch import watch

OUTPUTS = ("logprobs", "entropy", "values", "rewards", "token_rewards")


class New:
    """What a loss reads of the model being trained; only what is read is computed.

    `logprobs` f32[prompt, sample, token], `entropy` f32[prompt, sample, token] in nats,
    `values` f32[prompt, sample, token], `rewards` f32[prompt, sample],
    `token_rewards` f32[prompt, sample, token].
    """

    def __init__(
        self, builder: GraphBuilder, model: ModelType, tokens: TensorType, temperature: float
    ) -> None:
        origin = Origin(model.role, model.version, temperature)
        self._builder = builder
        self._types: dict[str, Type] = {
            "logprobs": TensorType(DType.F32, tokens.axes, origin),
            "entropy": f32(*tokens.axes),
            "values": f32(*tokens.axes),
            "rewards": f32(*tokens.axes[:-1]),
            "token_rewards": f32(*tokens.axes),
            "version": i32(),
        }
        self._read: dict[str, Value] = {}

    def read(self, name: str) -> Value:
        """Return an output of the model, as an input of the loss."""
        if name not in self._read:
            self._read[name] = self._builder.input(f"{NEW}{name}", self._types[name])
        return self._read[name]

    def __getattr__(self, name: str) -> Any:
        raise ProgramError(
            f"the model has no output `{name}`{nearest(name, OUTPUTS)}; a loss reads "
            + ", ".join(f"`new.{output}`" for output in OUTPUTS),
            where=Location.of_caller().excerpt(),
            hint="anything else of a model is computed before the update: "
            "`ops.logprobs(model, rollouts)`",
        )

    def reads(self, name: str) -> bool:
        """Return whether the loss has read an output."""
        return name in self._read

    logprobs = property(lambda self: self.read("logprobs"))
    entropy = property(lambda self: self.read("entropy"))
    values = property(lambda self: self.read("values"))
    rewards = property(lambda self: self.read("rewards"))
    token_rewards = property(lambda self: self.read("token_rewards"))


def update(
    model: Model, loss: Callable[[New], Any], rollouts: Any
) -> tuple[Model, dict[str, Value]]:
    """Take one optimizer step on a loss and return the model's next version.

    The gradient is that of the loss over all rows of `rollouts` together, whatever the size of
    microbatches, the packing and the number of GPUs.

    Args:
        model: the version to train; it is used up.
        loss: a function of `new`, traced once: it returns f32[], or (f32[], metrics), of f32[] or
            numbers by name. It may use any value made before; those are constants.
        rollouts: rollouts, examples, pairs or a record with their fields.

    Returns:
        The next version, and statistics named `<role>/loss`, `<role>/grad_norm`, ...

    Raises:
        ProgramError: the loss isn't f32[], or doesn't depend on `new`.
    """
    expect("update", "model", model, Model)
    expect("update", "rollouts", rollouts, *RECORDS)
    builder = builder_of([model], "update")
    outside_loss("update", builder)
    temperature = temperature_of(rollouts)

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        tokens = rollouts.tokens.type
        assert isinstance(model.type, ModelType)
        new = New(inner, model.type, tokens, temperature)
        with weighing(builder, model, rollouts) as weights:
            result = loss(new)
        value, metrics = _parts(result)
        _check_loss(inner, value, metrics)
        watched = watch(inner, new, rollouts, value) | (weights.measured() if weights else {})
        return [("loss", value), *metrics.items(), *watched.items()]

    graph, captured = trace_region(LOSS, build, builder)
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


def _parts(result: Any) -> tuple[Any, dict[Any, Any]]:
    """Return the loss, and its metrics if it has any."""
    match result:
        case tuple((value, Mapping() as metrics)):
            return value, {name: _number(x) for name, x in metrics.items()}
        case tuple():
            got = ", ".join(map(shown, result))
            refuse(
                "update",
                f"the loss must return f32[], or f32[] and a dict of metrics; got ({got})",
                'name what is measured: `return loss, {"kl": kl}`',
            )
    return result, {}


def _number(x: Any) -> Any:
    return Value.arithmetic.constant(x) if isinstance(x, Real) else x


def _check_loss(inner: GraphBuilder, value: Any, metrics: Mapping[str, Any]) -> None:
    where = Location.of_caller().excerpt()
    metric_names("update", metrics)
    named = {"the loss": value} | {f"metric `{name}`": x for name, x in metrics.items()}
    for name, x in named.items():
        if not isinstance(x, Value) or x.type != f32():
            raise ProgramError(
                f"update: {name} must be f32[]; got {shown(x)}",
                where=where,
                made=inner.made_here(x),
                hint="reduce it: `ops.token_mean(x, rollouts.mask)`, or `x.mean()` of samples",
            )
    if value not in depends_on_new(inner):
        raise ProgramError(
            "update: the loss has no gradient path to `new`: it would train nothing",
            where=where,
            made=inner.made_here(value, "the loss was made here:"),
            hint="use `new.logprobs`, `new.entropy`, `new.values` or `new.rewards`, not detached",
        )


def depends_on_new(inner: GraphBuilder) -> set[Value]:
    """Return the values of a loss that a gradient reaches."""
    reached = {value for name, value in inner.inputs if name.startswith(NEW)}
    for node in inner.nodes:
        if node.op.name != "detach" and not reached.isdisjoint(node.args):
            reached.update(v for v in node.results if v.type.dtype is DType.F32)  # type: ignore[union-attr]
    return reached
