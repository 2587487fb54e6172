"""What servers are posted, and where the scores are in what they answer."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from flowrl.rewards.call import Fault, shortened
from flowrl.rewards.server import PLACEHOLDER, ServerKind, ServerSpec, plural

Arguments = Mapping[str, Sequence[Any]]
"""The texts and columns of a request, lists of one entry a completion."""


class Unreadable(Exception):
    """An answer without scores; the fault says why."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


@attrs.frozen
class Format:
    """How one kind of server is spoken to.

    Attributes:
        body: what is posted.
        scores: those in an answer, unchecked; it raises `Unreadable`.
    """

    body: Callable[[ServerSpec, Arguments], dict[str, Any]]
    scores: Callable[[ServerSpec, Any], Any]


def texts(spec: ServerSpec, arguments: Arguments) -> list[str]:
    """Return the template of a server, filled in for each completion."""
    columns = {name: arguments[plural(name)] for name in PLACEHOLDER.findall(spec.text)}

    def filled(*entries: Any) -> str:
        entry = dict(zip(columns, entries, strict=True))
        return PLACEHOLDER.sub(lambda match: str(entry[match[1]]), spec.text)

    return list(map(filled, *columns.values()))


def _fields(spec: ServerSpec, arguments: Arguments) -> dict[str, Any]:
    return {
        field: texts(spec, arguments) if what == "texts" else list(arguments[what])
        for field, what in spec.fields.items()
    }


def _question(spec: ServerSpec, arguments: Arguments) -> dict[str, Any]:
    (text,) = texts(spec, arguments)
    return {"messages": [{"role": "user", "content": text}]}


def _listed(spec: ServerSpec, answer: Any) -> Any:
    return answer if isinstance(answer, list) else _at(answer, *spec.scores.split("."))


def _judged(spec: ServerSpec, answer: Any) -> list[float]:
    """Return the number in a judge's answer: that is one sample's, so another may have one."""
    content = _at(answer, "choices", 0, "message", "content")
    found = re.findall(spec.pattern or r"(?s)^.*$", content if isinstance(content, str) else "")
    last = found[-1] if found else ""
    number = last[0] if isinstance(last, tuple) else last
    try:
        return [float(number)]
    except ValueError:
        why = (
            f"in which `pattern` finds no number: '{spec.pattern}'" if spec.pattern else "no number"
        )
        text = f"answered {shortened(repr(content))}, {why}"
        raise Unreadable(Fault("no_number", text)) from None


def _in_order(field: str, _: ServerSpec, answer: Any) -> list[Any]:
    """Return a field of each entry of `data`, by the entries' index; of lists of one, the one."""
    try:
        found = {int(entry["index"]): entry[field] for entry in answer["data"]}
        if len(found) == len(answer["data"]):
            return [_one(found[index]) for index in range(len(found))]
    except (KeyError, TypeError, ValueError):
        pass
    what = f"`data` of entries with `index`, from 0, and `{field}`"
    text = f"answered without {what}: {shortened(repr(answer))}"
    raise Unreadable(Fault("unreadable", text))


def _one(value: Any) -> Any:
    while isinstance(value, list):
        if len(value) != 1:
            text = f"answered {len(value)} numbers for a completion, not one"
            raise Unreadable(Fault("unreadable", text))
        (value,) = value
    return value


def _at(answer: Any, *path: str | int) -> Any:
    """Return what is at a path of keys and indices of a JSON answer."""
    value = answer
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            dotted = ".".join(map(str, path))
            text = f"answered without `{dotted}`: {shortened(repr(answer))}"
            raise Unreadable(Fault("unreadable", text)) from None
    return value


FORMATS: Mapping[ServerKind, Format] = {
    "json": Format(_fields, _listed),
    "chat": Format(_question, _judged),
    "classify": Format(lambda *of: {"input": texts(*of)}, functools.partial(_in_order, "probs")),
    "pooling": Format(lambda *of: {"input": texts(*of)}, functools.partial(_in_order, "data")),
    "score": Format(
        lambda _, lists: {
            "text_1": list(lists["prompts"]),
            "text_2": list(lists["completions"]),
        },
        functools.partial(_in_order, "score"),
    ),
}
