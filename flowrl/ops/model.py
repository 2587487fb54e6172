"""The op kinds that run a model or the outside world; engines and reward workers perform them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from flowrl.ir.graph import NEW, Graph, Op
from flowrl.ir.signature import TypeRuleError
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

Head = Literal["lm", "value", "lm+value", "reward", "token_reward"]
"""What stands on a model's last layer; "lm+value" is a language model that is its own critic."""

HEAD_OF: Mapping[str, Head] = {
    "values": "value",
    "rewards": "reward",
    "token_rewards": "token_reward",
}
"""The head that gives an output of a model; all others are of a language model."""

PLAIN: Mapping[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_tokens": 0}
"""What changes the distribution that is sampled from, and the values that leave it as it is."""


class ModelOp(Op):
    """An op whose first argument is a model."""

    use: str
    """`generate`, `train` or `score`: what the model is used for."""
    head: ClassVar[Head | None] = None
    """The head of the model that it reads, if it matters which."""

    def heads(self) -> set[Head]:
        """Return the heads of the model that it reads."""
        return {self.head} if self.head else set()


def _model(type: Type) -> ModelType:
    if not isinstance(type, ModelType):
        raise TypeRuleError(
            f"the first argument must be a model; got {type}",
            hint="models are the `fl.Model` arguments of the program",
        )
    return type


def _tokens(type: Type, arg: int) -> TensorType:
    if not isinstance(type, TensorType) or type.dtype is not DType.I32 or not type.axes:
        raise TypeRuleError(
            f"expected token ids, i32[..., token]; got {type}",
            arg=arg,
            hint="hand it what `ops.generate` returned, or a record made of that",
        )
    return type


@attrs.frozen
class Generate(ModelOp):
    """See `generate`."""

    n: int
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int | None
    min_tokens: int
    stop: tuple[str, ...] | None
    axes: tuple[Axis, Axis] = attrs.field(repr=False)
    number: int = attrs.field(repr=False)
    use = "generate"
    head = "lm"
    results = ("tokens", "logprobs", "mask", "truncated", "version")

    def infer(self, model: Type, context: Type, rows: Type) -> tuple[Type, ...]:
        """model, i32[prompt, context], row[prompt] -> what `Rollouts` has."""
        policy, prompts = _model(model), _tokens(context, 1)
        samples = (*prompts.axes[:-1], self.axes[0])
        all_tokens = (*samples, self.axes[1])
        shape = (self.temperature, self.top_p, self.top_k, self.min_tokens)
        origin = Origin(policy.role, policy.version, *shape, sampled=True)
        logprobs = TensorType(DType.F32, all_tokens, origin)
        mask, truncated = boolean(*all_tokens), boolean(*samples)
        return i32(*all_tokens), logprobs, mask, truncated, i32(*samples)

    def attributes(self) -> dict[str, Any]:
        """Return what departs from plain sampling, and `n`."""
        shown = {k: v for k, v in super().attributes().items() if v != PLAIN.get(k)}
        return {k: v for k, v in shown.items() if v is not None}


@attrs.frozen
class Logprobs(ModelOp):
    """See `logprobs`."""

    temperature: float
    use = "score"
    head = "lm"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[..., token]."""
        of, over = _model(model), _tokens(tokens, 2)
        return (TensorType(DType.F32, over.axes, Origin(of.role, of.version, self.temperature)),)

    def attributes(self) -> dict[str, Any]:
        """Return the temperature, unless it is 1."""
        return {} if self.temperature == 1 else {"temperature": self.temperature}


@attrs.frozen
class Collision(ModelOp):
    """See `collision`."""

    temperature: float
    use = "score"
    head = "lm"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[..., token]."""
        _model(model)
        return (f32(*_tokens(tokens, 2).axes),)


@attrs.frozen
class Values(ModelOp):
    """See `values`."""

    use = "score"
    head = "value"

    def infer(self, model: Type, context: Type, tokens: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token] -> f32[..., token]."""
        _model(model)
        return (f32(*_tokens(tokens, 2).axes),)


@attrs.frozen
class BootstrapValues(ModelOp):
    """See `bootstrap_values`."""

    use = "score"
    head = "value"

    def infer(self, model: Type, context: Type, tokens: Type, truncated: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token], bool[...] -> f32[...]."""
        _model(model)
        axes = _tokens(tokens, 2).axes[:-1]
        if truncated != boolean(*axes):
            raise TypeRuleError(f"`truncated` must be {boolean(*axes)}; got {truncated}", arg=3)
        return (f32(*axes),)


@attrs.frozen
class Rewards(ModelOp):
    """The rewards that a model gives; see `score`.

    One reward a sample may be of a model with another tokenizer: it reads the text of the rows.
    """

    per: str
    use = "score"

    def heads(self) -> set[Head]:
        """A head of one number a sample, or a token."""
        return {"token_reward" if self.per == "token" else "reward"}

    def infer(self, model: Type, context: Type, tokens: Type, *rows: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token], row[...] -> f32[...] or f32[..., token]."""
        _model(model)
        axes = _tokens(tokens, 2).axes
        return (f32(*axes) if self.per == "token" else f32(*axes[:-1]),)


@attrs.frozen
class Score(Op):
    """The rewards that the run file binds; see `score`.

    Attributes:
        functions: their names, in order.
        role: whose tokens they are.
        models: the names of those that models give; they are arguments, and not called.
    """

    functions: tuple[str, ...]
    role: str = attrs.field(repr=False)
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    reward: Axis | None = attrs.field(repr=False)
    models: tuple[str, ...] = ()
    effect = True
    results = ("rewards", "kept")

    def infer(self, rows: Type, tokens: Type, *given: Type) -> tuple[Type, ...]:
        """row[prompt], i32[prompt, sample, token], given -> f32[prompt'2, sample'2], selection."""
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
        names = [n.removeprefix(NEW) for n, _ in self.loss.inputs if n.startswith(NEW)]
        return tuple(name for name in names if name != "version")

    def heads(self) -> set[Head]:
        """Those that give what the loss reads."""
        return {HEAD_OF.get(name, "lm") for name in self.reads}

    def result_names(self, count: int) -> tuple[str, ...]:
        """The model, and its statistics."""
        metrics = [name for name, _ in self.loss.outputs[1:]]
        return ("model", "loss", "grad_norm", "learning_rate", *metrics)

    def infer(self, model: Type, context: Type, tokens: Type, *captured: Type) -> tuple[Type, ...]:
        """model, i32[..., context], i32[..., token], captured -> model, f32[] statistics."""
        old = _model(model)
        if old.snapshot:
            raise TypeRuleError(
                f"needs a model that can be trained; got {old}",
                hint="update the model itself; a snapshot stays as it is",
            )
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
        """Model -> a frozen copy of it."""
        return (attrs.evolve(_model(model), snapshot=True),)


@attrs.frozen
class Base(ModelOp):
    """The model that another one is without its adapter: frozen, and no copy.

    Attributes:
        role: its name in the program.
    """

    role: str
    use = "train"

    def infer(self, model: Type) -> tuple[Type, ...]:
        """Model -> its base, which lies as it does."""
        return (ModelType(self.role, layout=_model(model).layout),)


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
