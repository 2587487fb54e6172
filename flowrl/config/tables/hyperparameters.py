"""The keys of `[program]` against the program's own signature."""

from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

from flowrl.config.tables.headers import with_homes
from flowrl.config.tables.off import with_off
from flowrl.config.toml.source import Source
from flowrl.config.toml.structure import (
    NO_NULL,
    NULLS,
    Invalid,
    KeyPath,
    Problem,
    dotted,
    structure,
)
from flowrl.config.toml.types import as_toml
from flowrl.errors import nearest


def check_hyperparameters(
    given: Mapping[str, Any], signature: Signature, source: Source, program: str
) -> dict[str, Any]:
    """Return the given hyperparameters in the types of a program's keyword-only parameters.

    A parameter without an annotation has the type of its default. An integer serves as a float.

    Args:
        given: values as TOML has them.
        signature: the program's, with annotations evaluated.
        source: where the values stand.
        program: its name.

    Raises:
        RunFileError: a name that the program doesn't have, a wrong type, or a parameter
            without default that isn't given.
    """
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    }
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in given.items():
        path = ("program", name)
        if name not in parameters:
            problems.append(_unknown(path, program, [*parameters]))
            continue
        try:
            _refuse_null(parameters[name], value, path)
            checked[name] = structure(_type_of(parameters[name]), value, path)
        except Invalid as error:
            problems += error.problems
    problems += [
        Problem(("program", name), f"[program] lacks `{name}`, which the program needs")
        for name, parameter in parameters.items()
        if parameter.default is Parameter.empty and name not in given
    ]
    if problems:
        raise source.error(map(with_off, with_homes(problems)))
    return checked


def _unknown(path: tuple[str, str], program: str, parameters: list[str]) -> Problem:
    close = nearest(path[-1], ["file", "name", *parameters])
    names = ", ".join(parameters)
    there = f"the hyperparameters of `{program}` are {names or '(none)'}"
    hint = there if close else f"leave it out: {there}"
    return Problem(path, f"`{program}` has no `{path[-1]}`{close}", hint, unknown=True)


def _refuse_null(parameter: Parameter, value: Any, path: KeyPath) -> None:
    """Refuse a word for the null that is a parameter's default: it would be a string."""
    if parameter.default is None and parameter.annotation is Parameter.empty and value in NULLS:
        text = f"`{dotted(path)}` is a string: {as_toml(value)}"
        raise Invalid([Problem(path, text, NO_NULL, misfit=True)])


def _type_of(parameter: Parameter) -> Any:
    if parameter.annotation not in (Parameter.empty, None):
        return parameter.annotation
    plain = isinstance(parameter.default, bool | int | float | str | list | tuple | dict)
    return type(parameter.default) if plain else Any
