"""Checks of what ops are given, before a type rule sees it."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from numbers import Real
from typing import Any, NoReturn

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Value
from flowrl.ir.records import shown

WHENCE = {
    "Value": "values come from ops and from the program's arguments, not from Python or torch",
    "Model": "models are the `fl.Model` arguments of the program, and what `ops.update` returns",
    "Prompts": "prompts are the `fl.Prompts` argument of the program",
    "Rollouts": "rollouts come from `ops.generate`, data from arguments of the program",
    "Buffer": "carry one: `replay: fl.Carry = fl.Carry(fl.Buffer())` among the arguments",
    "Batches": "divide a record first: `ops.minibatches(batch, sequences=64)`",
}
"""Where the things come from that ops take."""

LOSS = "loss"
"""How the graph of a loss is called."""

KNOWN = "options are numbers that are known while tracing, such as hyperparameters"


def expect(op: str, name: str, x: Any, *kinds: type) -> None:
    """Check that argument `name` of an op is of one of `kinds`.

    Raises:
        ProgramError: it isn't.
    """
    if not isinstance(x, kinds):
        wanted = ", ".join(kind.__name__ for kind in kinds)
        raise ProgramError(
            f"{op}: `{name}` must be {' or '.join(wanted.rsplit(', ', 1))}; got {shown(x)}",
            where=Location.of_caller().excerpt(),
            hint=WHENCE[kinds[0].__name__],
        )


def at_least_one(op: str, name: str, number: Any, hint: str) -> None:
    """Check that an option is a positive integer.

    Raises:
        ProgramError: it isn't.
    """
    if not isinstance(number, int) or number < 1:
        raise ProgramError(
            f"{op}: `{name}` must be an integer of at least 1; got {number!r}",
            where=Location.of_caller().excerpt(),
            hint=hint,
        )


def in_interval(op: str, interval: str, *, hint: str = "", **options: Any) -> None:
    """Check that each option that isn't None is a number in an interval, such as "(0, 1]".

    Raises:
        ProgramError: one isn't.
    """
    low, high = map(float, interval[1:-1].split(","))
    for name, x in options.items():
        if x is None:
            continue
        known = isinstance(x, Real)
        after = known and (x >= low if interval[0] == "[" else x > low)
        before = known and (x <= high if interval[-1] == "]" else x < high)
        if not (after and before):
            least = f"{'at least' if interval[0] == '[' else 'above'} {low:g}"
            bounded = least if high == inf else f"in {interval}"
            wanted = "a number" if low == -inf else bounded
            raise ProgramError(
                f"{op}: `{name}` must be {wanted}; got {x if known else shown(x)}",
                where=Location.of_caller().excerpt(),
                hint=(hint or f"leave `{name}` out for its default") if known else KNOWN,
            )


def ordered(op: str, low: Any, high: Any, hint: str) -> None:
    """Check that two bounds are numbers or None, `low` not above `high`.

    Raises:
        ProgramError: they aren't.
    """
    in_interval(op, "[-inf, inf]", low=low, high=high)
    if low is not None and high is not None and low > high:
        refuse(op, f"`low` must not be above `high`; got {low} and {high}", hint)


def finite_weights(op: str, weights: Sequence[Any] | None) -> None:
    """Check that the weights of several rewards are finite numbers.

    Raises:
        ProgramError: one isn't.
    """
    if not all(isinstance(weight, Real) and isfinite(weight) for weight in weights or ()):
        refuse(op, f"`weights` must be finite numbers; got {weights!r}", "give one a reward")


def refuse(op: str, problem: str, hint: str) -> NoReturn:
    """Refuse options that contradict each other.

    Raises:
        ProgramError: always.
    """
    raise ProgramError(f"{op}: {problem}", where=Location.of_caller().excerpt(), hint=hint)


def metric_names(op: str, metrics: Mapping[Any, Any]) -> None:
    """Check that metrics have names.

    Raises:
        ProgramError: a key is no string.
    """
    for name in metrics:
        if not isinstance(name, str):
            refuse(op, f"a metric's name must be a string; got {name!r}", 'write `{"name": x}`')


def outside_loss(op: str, builder: GraphBuilder | None) -> None:
    """Check that what acts on the world, or changes a model, isn't called in a loss.

    Raises:
        ProgramError: it is.
    """
    while builder is not None and builder.parent is not None:
        if builder.name == LOSS:
            refuse(
                op,
                "a loss can't do this: it is computed as often as its update needs it",
                "call it before the update: a loss may read any value made before",
            )
        builder = builder.parent


def per_token(op: str, name: str, x: Any) -> None:
    """Check that rewards have an axis of tokens, rather than broadcast one number to each.

    Raises:
        ProgramError: they are one number a sample.
    """
    axes = x.axes if isinstance(x, Value) else ()
    if not axes or axes[-1].name != "token":
        refuse(
            op,
            f"`{name}` must be f32[..., token], received at each token; got {shown(x)}",
            "put a sample's score on its last token: `ops.token_rewards(scores, rollouts.mask)`",
        )


def one_of(op: str, name: str, given: Any, allowed: Sequence[object]) -> None:
    """Check that an option is one of the `allowed`, the first of which is its default.

    Raises:
        ProgramError: it isn't.
    """
    if given not in allowed:
        raise ProgramError(
            f"{op}: `{name}` must be {' or '.join(map(repr, allowed))}; got {given!r}",
            where=Location.of_caller().excerpt(),
            hint=f"leave `{name}` out for {allowed[0]!r}",
        )
