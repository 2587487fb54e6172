"""Ops that users write: a function of torch tensors and a type rule."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.graph import Value
from flowrl.ir.records import flatten
from flowrl.ir.signature import Signature
from flowrl.ops.tensor import Per, apply_many

SUPPLIED = ("lengths", "groups")
"""Options that the runtime gives."""


def op(signature: str, *, per: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of torch tensors an op of the language.

    `@fl.op("f32[prompt, sample], i32[prompt, sample] -> f32[prompt, sample]", per="group")`

    The function gets one tensor a type, then options by keyword; it returns one tensor a result.
    With `per="token"` it is called once with flat tensors of all elements, and must treat each on
    its own. With "sample" or "group" it is called once for each sample or group, with the elements
    of that one; if it has a keyword `lengths` (elements a sample) or `groups` (a group's number for
    each sample), it is called once with flat tensors of all instead. With "batch" it is called
    once with flat tensors of all.

    It must be pure: equal arguments give equal results, as equal calls are computed once. So it
    draws no random numbers. It may write to the tensors that it gets: they are its own.

    Args:
        signature: types of the arguments and results. A name stands for one axis of that name,
            `...` for any axes; an argument that lacks the last axes is broadcast.
        per: "token", "sample", "group" or "batch": the smallest unit that needs no other.

    Raises:
        ProgramError: the signature or `per` can't be read, or doesn't fit the function. At a call:
            another number of arguments, an unknown option, or a value of the program as an option.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        parsed, unit = _check(function, signature, per)
        reference, code = _reference(function)

        def call(*args: Value | float, **params: Any) -> Any:
            named = dict(zip(parsed.names, args, strict=False))
            if len(args) != len(parsed.args):
                raise ProgramError(
                    f"{function.__name__}: takes {len(parsed.args)} values, {parsed}; "
                    f"got {len(args)}",
                    where=Location.of_caller().excerpt(),
                    hint=f"give {', '.join(parsed.names)}; options are given by keyword",
                )
            _check_options(function, params)
            results = apply_many(
                reference, signature, unit, named, params, code=code, user=function
            )
            return results[0] if len(results) == 1 else results

        call.__doc__, call.__name__ = function.__doc__, function.__name__
        return call

    return decorate


def _check(function: Callable[..., Any], signature: str, per: str) -> tuple[Signature, Per]:
    where = Location.of_function(function)
    parameters = inspect.signature(function).parameters.values()
    names = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    try:
        parsed = Signature.parse(signature, names)
        if per not in tuple(Per):
            raise ValueError(f"expected a unit, {', '.join(Per)}; got {per!r}")
    except ValueError as error:
        raise ProgramError(
            f"@fl.op of `{function.__name__}`: {error}",
            where=where.excerpt(),
            hint='write types as `"f32[..., token], bool[..., token] -> f32[...]"` '
            "and `per` as token, sample, group or batch",
        ) from None
    if len(names) != len(parsed.args):
        raise ProgramError(
            f"@fl.op of `{function.__name__}`: the signature has {len(parsed.args)} arguments, "
            f"the function {len(names)} ({', '.join(names)})",
            where=where.excerpt(),
            hint="give one type for each positional argument; options come after `*`",
        )
    return parsed, Per(per)


def _check_options(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    where, name = Location.of_caller().excerpt(), function.__name__
    known = _options(function)
    for option, x in given.items():
        if option not in known:
            raise ProgramError(
                f"{name}: has no option `{option}`{nearest(option, known)}; "
                f"it has {', '.join(known) or 'none'}",
                where=where,
                hint="options are what the function takes after `*`",
            )
        for value in (leaf for leaf in flatten(x)[0] if isinstance(leaf, Value)):
            raise ProgramError(
                f"{name}: option `{option}` must be known while tracing; got {value.type}",
                where=where,
                hint="options are constants; give it as an argument, with a type in the signature",
            )


def _options(function: Callable[..., Any]) -> list[str]:
    """Return the names of the options that a call may give."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return [name for name in names if name not in SUPPLIED]


def _reference(function: Callable[..., Any]) -> tuple[str, str]:
    path = Path(function.__code__.co_filename)
    try:
        source = inspect.getsource(function)
    except OSError:
        source = function.__code__.co_code.hex()
    code = hashlib.sha256(source.encode()).hexdigest()[:8]
    return f"{path.name}:{function.__qualname__}", code
