"""The row of the data that a refused sample was made of, for messages."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flowrl.errors import EngineError, FlowrlError
from flowrl.ir.graph import Value
from flowrl.ir.types import Axis, DType, SelectionType, TensorType
from flowrl.runtime.rows.rows import Row
from flowrl.runtime.rows.selection import Selection

Ask = Callable[[Callable[[Any], Any], Any], Any]
"""`ask(function, value)`: what `function` says of a value, wherever that is."""


class SampleError(EngineError):
    """An op that can't take one sample, or one group.

    Args:
        problem: what was expected and what came.
        where: an excerpt of the program.
        hint: what to do.
        axis: the axis of prompts.
        prompt: the number of the sample's prompt on it.
        sample: the sample's number in its group; None for the group.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str,
        hint: str,
        axis: Axis,
        prompt: int,
        sample: int | None = None,
    ) -> None:
        super().__init__(problem, where=where, hint=hint)
        self.axis, self.prompt, self.sample = axis, prompt, sample

    def at(self, prompt: int, sample: int | None) -> "SampleError":
        """Return the same of another place on the axis."""
        return SampleError(
            self.problem,
            where=self.where,
            hint=self.hint,
            axis=self.axis,
            prompt=prompt,
            sample=sample,
        )


def origins(env: Mapping[Value, Any]) -> dict[Value, Any]:
    """Return the values from which rows can be told: rows themselves, and selections of them."""
    return {value: x for value, x in env.items() if _is_rows(value) or _selects(value)}


def named(error: SampleError, env: Mapping[Value, Any]) -> FlowrlError:
    """Return the error with the row of its sample; as it is if `env` doesn't tell."""
    row = row_of(error, env, lambda function, x: function(x))
    if not row:
        return error
    return error.told(where=f"{row}\n{error.where}")


def row_of(error: SampleError, env: Mapping[Value, Any], ask: Ask) -> str:
    """Return `  file:row (row id), sample i`, or nothing if `env` doesn't tell.

    Args:
        error: names a place on an axis of prompts.
        env: the values of the graph at hand.
        ask: how to ask about one.
    """
    rows = {value.axes[0]: x for value, x in env.items() if _is_rows(value)}
    made = {new: (old, x) for value, x in env.items() for old, new in _selects(value)}
    axis, place = error.axis, error.prompt
    while axis not in rows and axis in made:
        axis, selection = made[axis]
        place = ask(partial(_kept, place), selection)
    if axis not in rows:
        return ""
    sample = "" if error.sample is None else f", sample {error.sample}"
    return f"  {ask(partial(_told, place), rows[axis])}{sample}"


def _is_rows(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.ROW


def _selects(value: Value) -> tuple[tuple[Axis, Axis], ...]:
    """Return the old and the new axis of prompts of a selection; nothing of other values."""
    return value.type.axes[:1] if isinstance(value.type, SelectionType) else ()


def _kept(place: int, selection: Selection) -> int:
    return int(selection.index[0][place])


def _told(place: int, rows: Sequence[Row]) -> str:
    return f"{rows[place].where} (row {rows[place].id})"
