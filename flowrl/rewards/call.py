"""One call of a reward function, and the check of the scores that it or a server gives."""

import asyncio
import concurrent.futures
import inspect
import math
import numbers
import reprlib
import traceback
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs

from flowrl import user_file
from flowrl.errors import Location
from flowrl.user_file import syntax_place

FaultKind = Literal[
    "exception",
    "timeout",
    "not_a_number",
    "wrong_count",
    "wrong_type",
    "unanswered",
    "refused",
    "denied",
    "no_json",
    "unreadable",
    "no_number",
]
"""The last six are of servers: no answer after all attempts; a status that a completion may be to
blame for, and one that none is; an answer that is no JSON after all attempts; one without scores,
and a judge's without a number."""

LONGEST_TEXT = 500
"""Characters of an exception's or an answer's text that are told."""

LARGEST = (2 - 2**-23) * 2.0**127
"""The largest score: rewards are float32."""

CALLERS = (
    __file__,
    user_file.__file__,
    str(Path(asyncio.__file__).parent),
    str(Path(concurrent.futures.__file__).parent),
)
"""What stands between a call and the function's own lines."""


@attrs.frozen
class Fault:
    """Why there is no score. `text` goes on from "the function"; `source` is where that raised."""

    kind: FaultKind
    text: str
    source: str = ""


Reply = list[float | Fault] | Fault
"""A score or a fault for each completion, or the fault of the whole call."""


def call(function: Callable[..., Any], arguments: Mapping[str, Any], count: int) -> Reply:
    """Score `count` completions in one call. Whatever the function does, a reply comes back.

    What `async def` gives is run to its end.
    """
    try:
        result = function(**arguments)
        return checked(asyncio.run(result) if inspect.iscoroutine(result) else result, count)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Fault("exception", f"raised {described(error)}", raised_at(error))


def checked(result: Any, count: int) -> Reply:
    """Return what was given for `count` completions as scores, or why it is none."""
    items = result.tolist() if hasattr(result, "tolist") else result
    if not isinstance(items, list | tuple):
        return Fault("wrong_type", f"returned {_typed(result)}, not a list of {count} numbers")
    if len(items) != count:
        return Fault(
            "wrong_count",
            f"returned {counted(len(items), 'score')} for {counted(count, 'completion')}",
        )
    return [_number(item) for item in items]


def counted(count: int, noun: str) -> str:
    """Return `1 score`, `2 scores`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def described(error: BaseException) -> str:
    """Return the exception's type and text as a traceback ends with them, cut if very long."""
    return shortened(user_file.described(error))


def shortened(text: str) -> str:
    """Return a text, cut if very long."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def raised_at(error: BaseException) -> str:
    """Return an excerpt of the innermost line in the file that was called, if any was reached.

    Of a file that can't be parsed, it is the line that can't.
    """
    after = traceback.extract_tb(error.__traceback__)[1:]
    frames = [
        f for f in after if "importlib" not in f.filename and not f.filename.startswith(CALLERS)
    ]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return syntax_place(error) or (Location.of_frame(own[-1]).excerpt() if own else "")


def _number(item: Any) -> float | Fault:
    if item is None:
        return Fault("not_a_number", "returned None")
    value = item.item() if getattr(item, "ndim", None) == 0 else item  # of numpy or torch
    if not isinstance(value, numbers.Real | Decimal):
        return Fault("wrong_type", f"returned {_typed(item)} where a number belongs")
    try:
        score = float(value)
    except OverflowError:
        score = math.inf
    if LARGEST < abs(score) < math.inf:
        return Fault("not_a_number", f"returned {score:g}, more than float32 holds")
    return score if math.isfinite(score) else Fault("not_a_number", f"returned {score}")


def _typed(value: Any) -> str:
    return f"{type(value).__name__} ({reprlib.repr(value)})"
