"""Rows of data as the runtime sees them: what rides along with each prompt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from flowrl.functional.ragged import Ragged


@attrs.frozen
class Row:
    """One row of the data.

    Attributes:
        id: the row's number in its source, the same in every epoch; part of a sample's seed.
        where: `file:row`, for messages.
        prompt: the text that the model reads, for reward functions.
        columns: the row's other columns, passed to reward functions by name.
        messages: the prompt as chat messages; none if it is plain text.
    """

    id: int
    where: str
    prompt: str
    columns: Mapping[str, Any] = attrs.field(factory=dict)
    messages: Sequence[Mapping[str, Any]] = ()


def row_keys(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the id of each row, and how many rows of that id came before it.

    A step whose rows span two epochs may have a row twice.
    """
    times: Counter[int] = Counter()
    keys = []
    for row in rows:
        keys.append((row.id, times[row.id]))
        times[row.id] += 1
    return keys


@attrs.frozen(eq=False)
class PromptBatch:
    """What `Prompts` is when it runs. context: i64[prompt, context], token ids."""

    rows: tuple[Row, ...]
    context: Ragged


@attrs.frozen(eq=False)
class ExampleBatch:
    """What `Examples` is when it runs.

    Attributes:
        context: i64[example, context], never empty.
        tokens: i64[example, token], what follows it.
        mask: bool[example, token], True on tokens that are trained.
    """

    rows: tuple[Row, ...]
    context: Ragged
    tokens: Ragged
    mask: Ragged


@attrs.frozen(eq=False)
class PairBatch:
    """What `Pairs` is when it runs: two samples a prompt, the chosen one first.

    Attributes:
        context: i64[prompt, context].
        tokens: i64[prompt, sample, token].
        mask: bool[prompt, sample, token], True on tokens that are trained.
    """

    rows: tuple[Row, ...]
    context: Ragged
    tokens: Ragged
    mask: Ragged


Batch = PromptBatch | ExampleBatch | PairBatch


def fields(batch: Batch, name: str) -> dict[str, Any]:
    """Return what a batch has, under the names of the graph inputs that one argument makes."""
    found: dict[str, Any] = {f"{name}.context": batch.context, f"{name}.rows": batch.rows}
    if not isinstance(batch, PromptBatch):
        found |= {f"{name}.tokens": batch.tokens, f"{name}.mask": batch.mask}
    return found


class Cursor(Protocol):
    """A place in the data; `take` moves it."""

    position: int
    """Rows handed out so far, over all epochs; assign to move."""

    def take(self, count: int) -> Batch:
        """Return the next `count` rows.

        Raises:
            DataError: the data ends before.
        """
        ...
