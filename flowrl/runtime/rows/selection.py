"""Choose, reorder and join rows of packed values."""

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.types import Axis
from flowrl.runtime.rows.form import Form
from flowrl.runtime.rows.places import children
from flowrl.runtime.rows.rows import Row, row_keys


@attrs.frozen(eq=False)
class Selection:
    """Which elements are kept, by axis.

    Attributes:
        axes: the axes on which it chooses, outermost first; what lies below follows.
        index: for each of them, the numbers of the kept elements.
        counts: for each but the first, how many are kept in each kept element above.
    """

    axes: tuple[Axis, ...]
    index: tuple[Tensor, ...]
    counts: tuple[Tensor, ...] = ()


def take(selection: Selection, value: Any, axes: Sequence[Axis]) -> Any:
    """Return the selected elements of a packed value with these axes, or of rows of data."""
    first = selection.index[0]
    if not isinstance(value, Ragged):
        return tuple(value[i] for i in first.tolist())
    index, lengths = first, []
    for level, axis in enumerate(axes[1:], start=1):
        if axis in selection.axes:
            index, count = selection.index[level], selection.counts[level - 1]
        else:
            count = value.lengths[level - 1][index]
            index = children(value.lengths[level - 1], index)
        lengths.append(count)
    return Ragged(value.values[index], tuple(lengths))


def select(condition: Ragged, axes: tuple[Axis, ...]) -> Selection:
    """Keep the elements where a condition on prompts or samples holds."""
    kept = condition.values.nonzero()[:, 0]
    if len(axes) == 1:
        return Selection(axes, (kept,))
    counts = (
        torch.stack([row.sum() for row in condition.rows()])
        if condition.lengths[0].numel()
        else kept
    )
    prompts = counts.nonzero()[:, 0]
    return Selection(axes, (prompts, kept), (counts[prompts],))


def align(value: Any, rows: Sequence[Row], to: Sequence[Row], axes: Sequence[Axis]) -> Any:
    """Return the elements of `value`, which lies on `rows`, in the order of `to`.

    A row that the data hand out twice in a step is there twice on both sides: the first goes
    with the first, the second with the second.

    Raises:
        EngineError: `to` has a row that `rows` lacks.
    """
    places = {key: place for place, key in enumerate(row_keys(rows))}
    wanted = row_keys(to)
    for row, key in zip(to, wanted, strict=True):
        if key not in places:
            raise EngineError(
                f"the value has no entry for row {row.id} ({row.where}), which `to` has",
                hint="both must be made of the same prompts; a row whose reward failed is gone "
                "where `on_reward_error` drops its group",
            )
    index = torch.tensor([places[key] for key in wanted], dtype=torch.int64)
    return take(Selection(tuple(axes[:1]), (index,)), value, axes)


def concat(parts: Sequence[Any]) -> Any:
    """Return packed values, or rows of data, one after another."""
    if not isinstance(parts[0], Ragged):
        return tuple(row for part in parts for row in part)
    lengths = zip(*(part.lengths for part in parts), strict=True)
    return Ragged(
        torch.cat([p.values for p in parts]), tuple(torch.cat(level) for level in lengths)
    )


def count(value: Any) -> int:
    """Return the number of elements of the first axis, or of rows of data."""
    return Form.of(value).first if isinstance(value, Ragged) else len(value)


def first(value: Any, axes: Sequence[Axis], start: int, stop: int) -> Any:
    """Return the elements `start` to `stop` of the first axis."""
    return take(Selection(tuple(axes[:1]), (torch.arange(start, stop),)), value, axes)
