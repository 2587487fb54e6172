"""Divide rows for `ops.scan`: into minibatches of so many sequences, or microbatches of tokens."""

from typing import Any

import attrs

from flowrl.ir.graph import Op, Value
from flowrl.ir.records import RECORDS, flatten
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.trace import bind, builder_of
from flowrl.ir.types import Axis, MinibatchesType, SelectionType, TensorType, Type
from flowrl.ops.data import fresh_axes
from flowrl.ops.expect import at_least_one, expect, one_of


class Division(Op):
    """An op that divides rows."""

    by: str
    """What stays whole: a "group" or a "sequence"."""
    axes: tuple[tuple[Axis, Axis], ...]

    def infer(self, tokens: Type, *context: Type) -> tuple[Type, ...]:
        """i32[..., token], i32[..., context] if these count -> minibatches[prompt'2, ...]."""
        if not isinstance(tokens, TensorType) or not tokens.axes:
            raise TypeRuleError(f"takes values with rows; got {tokens}")
        return (MinibatchesType(SelectionType(self.axes)),)


@attrs.frozen
class Minibatches(Division):
    """See `minibatches`."""

    sequences: int
    epochs: int
    by: str
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    balance: str = "sequences"
    number: int = attrs.field(default=0, repr=False)


@attrs.frozen
class Microbatches(Division):
    """See `microbatches`."""

    max_tokens: int
    by: str
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)


@attrs.frozen
class Batches:
    """A record and how it is divided, for `scan`."""

    division: Value
    record: Any


def minibatches(
    batch: Any, *, sequences: int, epochs: int = 1, by: str = "group", balance: str = "sequences"
) -> Batches:
    """Divide a record into minibatches for `ops.scan`.

    Args:
        batch: rollouts, examples, pairs or a record, on [prompt, sample, token] or fewer.
        sequences: sequences a minibatch. They are divided evenly into
            ceil(all / sequences) minibatches.
        epochs: how often each row is seen; each epoch has its own order.
        by: "group" keeps the samples of a prompt together, "sequence" doesn't.
        balance: what is even. "sequences": their number, whole groups counting one each, and each
            epoch divides anew. "tokens": the tokens that a model reads, context and response; the
            division follows from lengths alone, and each epoch has its own order of minibatches.

    Raises:
        ProgramError: sequences or epochs below 1, another `by` or `balance`.

    Source: of `balance="tokens"`, Graham 1969, "Bounds on multiprocessing timing anomalies": the
    largest minibatch has at most 4/3 of the tokens that it has to have.
    """
    expect("minibatches", "batch", batch, *RECORDS)
    at_least_one("minibatches", "sequences", sequences, "sequences counts samples, not prompts")
    at_least_one("minibatches", "epochs", epochs, "epochs says how often each row is seen")
    one_of("minibatches", "by", by, ("group", "sequence"))
    one_of("minibatches", "balance", balance, ("sequences", "tokens"))
    builder, leaves = builder_of([batch.tokens], "minibatches"), flatten(batch)[0]
    axes = fresh_axes(builder, leaves, "minibatches", whole=by == "group")
    number = builder.number("draw")
    division = Minibatches(sequences, epochs, by, axes, balance, number)
    return _divided(division, batch, counts_context=balance == "tokens")


def microbatches(batch: Any, *, max_tokens: int, by: str = "group") -> Batches:
    """Divide a record into few microbatches of at most so many tokens, for `ops.scan`.

    For what is to be computed of a bounded number of tokens at a time. A scan that updates a model
    takes a step for each; the microbatches inside one step are `tokens_per_microbatch` of the run
    file, and change no gradient.

    Args:
        batch: rollouts, examples, pairs or a record.
        max_tokens: the most tokens of a microbatch, context and response.
        by: "group" keeps the samples of a prompt together, "sequence" doesn't.

    Returns:
        Each row once, at most 11/9 of the fewest microbatches possible, plus 2/3; a division that
        follows from lengths alone. When it runs, EngineError: a group or sequence has more tokens.

    Raises:
        ProgramError: max_tokens below 1, or another `by`.

    Source: Dosa 2007, "The tight bound of first fit decreasing bin-packing".
    """
    expect("microbatches", "batch", batch, *RECORDS)
    at_least_one("microbatches", "max_tokens", max_tokens, "max_tokens counts context and response")
    one_of("microbatches", "by", by, ("group", "sequence"))
    builder, leaves = builder_of([batch.tokens], "microbatches"), flatten(batch)[0]
    axes = fresh_axes(builder, leaves, "microbatches", whole=by == "group")
    return _divided(Microbatches(max_tokens, by, axes), batch, counts_context=True)


def _divided(division: Division, batch: Any, *, counts_context: bool) -> Batches:
    context = [batch.prompts.context] if counts_context else []
    return Batches(bind(division, batch.tokens, *context)[0], batch)
