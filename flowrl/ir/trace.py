"""Tracing: run a Python function on symbolic values and record what it does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import CAPTURED, Graph, Op, Value
from flowrl.ir.types import Axis

_current: ContextVar[GraphBuilder] = ContextVar("current builder")
_at: ContextVar[Location] = ContextVar("where ops are said to stand")


@contextmanager
def building(builder: GraphBuilder) -> Iterator[GraphBuilder]:
    """Record the ops called inside into `builder`."""
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


def builder_of(args: Sequence[Value], what: str) -> GraphBuilder:
    """Return the builder that records now, or the session that concrete values belong to."""
    builder = _current.get(None)
    for arg in args:
        builder = builder or getattr(arg, "session", None)
    if builder is None:
        raise ProgramError(
            f"{what} is called outside of a program",
            where=Location.of_caller().excerpt(),
            hint="call it in a function decorated with `@fl.program`, "
            "or on concrete values of a `fl.session(...)`",
        )
    return builder


def bind(op: Op, *args: Value) -> tuple[Value, ...]:
    """Apply `op` in the program being traced, or at once to concrete values.

    Raises:
        ProgramError: an argument is no value of the program, or breaks the op's type rule.
    """
    loc = _at.get(None) or Location.of_caller()
    for arg in args:
        if not isinstance(arg, Value):
            raise ProgramError(
                f"{op.name}: expected a value of the program; got {type(arg).__name__}",
                where=loc.excerpt(),
                hint="tensors come from ops and from the program's arguments, "
                "not from Python or torch",
            )
    return builder_of(args, op.name).add(op, args, loc)


@contextmanager
def located(loc: Location) -> Iterator[None]:
    """Say that the ops called inside stand at `loc`."""
    token = _at.set(loc)
    try:
        yield
    finally:
        _at.reset(token)


def trace_region(
    name: str,
    function: Callable[[GraphBuilder], Sequence[tuple[str, Value]]],
    parent: GraphBuilder,
    blocked: Mapping[Axis, str] | None = None,
) -> tuple[Graph, tuple[Value, ...]]:
    """Trace a nested function; return its graph and the outer values that it captured.

    `function` gets the builder, adds its inputs and returns its outputs. Captured values are
    the inputs after those.
    """
    builder = GraphBuilder(name, parent, blocked)
    with building(builder):
        loc = _at.get(None) or Location.of_caller()
        outputs = [(key, builder.give_back(value, loc)) for key, value in function(builder)]
    captured = dict(builder.captured)
    own = [pair for pair in builder.inputs if pair[1] not in set(captured.values())]
    names = {value: f"{CAPTURED}{i}" for i, value in enumerate(captured.values())}
    builder.inputs = own + [(names[value], value) for value in captured.values()]
    return builder.finish(outputs), tuple(captured)
