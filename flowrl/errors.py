"""Every error that a user can cause, and the source excerpt that shows where."""

import difflib
import inspect
import linecache
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import attrs

PACKAGE = f"{Path(__file__).parent}{os.sep}"


@attrs.frozen
class Location:
    """A span of the user's source: 1-based line, 0-based columns."""

    file: str
    line: int
    start: int = 0
    end: int = 0

    @classmethod
    def of_caller(cls) -> "Location":
        """Return the span of the innermost call made from outside the flowrl package."""
        frame = inspect.currentframe()
        while frame and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        assert frame is not None, "every call into flowrl starts outside of it"
        line, last, start, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if last != line:  # a call over several lines: mark its first line to the end
            end = None
        return cls(frame.f_code.co_filename, line or frame.f_lineno, start or 0, end or 0)

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> "Location":
        """Return the line of a function's `def`, below its decorators."""
        file, first = function.__code__.co_filename, function.__code__.co_firstlineno
        lines = linecache.getlines(file)[first - 1 :]
        head = f"def {function.__name__}("
        above = next((i for i, text in enumerate(lines) if text.lstrip().startswith(head)), 0)
        return cls(file, first + above)

    @classmethod
    def of_frame(cls, frame: FrameSummary) -> "Location":
        """Return the span of a traceback's frame; of several lines, the first to its end."""
        end = frame.end_colno if frame.end_lineno == frame.lineno else None
        return cls(frame.filename, frame.lineno or 1, frame.colno or 0, end or 0)

    def excerpt(self) -> str:
        """Return `file:line`, the source line, and a caret under the call."""
        text = linecache.getline(self.file, self.line).rstrip()
        if not text:
            return f"  {self}"
        start = min(self.start, len(text)) or len(text) - len(text.lstrip())
        width = max(1, min(self.end or len(text), len(text)) - start)
        number = f"{self.line:>5} | "
        return f"  {self}\n{number}{text}\n{' ' * (len(number) + start)}{'^' * width}"

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class FlowrlError(Exception):
    """An error that is the user's to fix: what was expected and came, where, and what to do.

    Args:
        problem: what was expected and what came, in one sentence.
        where: the file, line, key or row; an excerpt for source code.
        made: where the bad value was made, if that is elsewhere.
        hint: what to do or write instead.
    """

    def __init__(
        self, problem: str, *, where: str = "", made: Iterable[str] = (), hint: str = ""
    ) -> None:
        self.problem, self.where, self.made, self.hint = problem, where, tuple(made), hint
        parts = [problem, where, *self.made, f"help: {hint}" if hint else ""]
        super().__init__("\n".join(part for part in parts if part))

    def told(self, problem: str = "", *, where: str, made: Iterable[str] = ()) -> "FlowrlError":
        """Return what is wrong, told of another place.

        Args:
            problem: in other words; its own if not given.
            where: the place.
            made: further ones, after its own.

        Returns:
            an error of one of the classes here, with this one's hint.
        """
        classes = type(self).__mro__
        cls: type[FlowrlError] = next(c for c in classes if c.__module__ == __name__)
        told = (*self.made, *made)
        return cls(problem or self.problem, where=where, made=told, hint=self.hint)

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross to another process whole, whatever a subclass's arguments are."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[FlowrlError], args: tuple[Any, ...], state: dict[str, Any]) -> FlowrlError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ProgramError(FlowrlError):
    """A program that cannot be traced, typed or compiled."""


class RunFileError(FlowrlError):
    """A run file with an unknown key, a wrong type or a contradiction."""


class DataError(FlowrlError):
    """A data file or row that cannot be used."""


class RewardError(FlowrlError):
    """A reward function that failed, or returned what is not a number per completion."""

    reward: str = ""
    """The name of the reward that it is of, if that is known."""


class EngineError(FlowrlError):
    """An engine that cannot do what it was asked."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean `x`?)` for the known name closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.55)
    return f" (did you mean `{close[0]}`?)" if close else ""
