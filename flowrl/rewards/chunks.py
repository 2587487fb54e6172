"""Cutting completions into calls, and putting the replies together again."""

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs

from flowrl.errors import RewardError
from flowrl.rewards.call import Fault, Reply
from flowrl.rewards.resolve import Columns
from flowrl.rewards.scores import Failure, Scores
from flowrl.runtime.rows import Row


@attrs.frozen
class Chunk:
    """The completions of one call, whose rows have the same columns.

    whole: what a call with more of them came back with, if this one repeats a part of it.
    """

    indices: range
    columns: tuple[str, ...]
    whole: Fault | None = None


class Tally:
    """One `score`: the calls to make and what came back.

    The calls depend on the completions, the columns and `batch` alone, so that the scores do
    not depend on the number of workers.
    """

    def __init__(
        self,
        function: str,
        takes: Columns,
        rows: Sequence[Row],
        completions: Sequence[str],
        batch: int,
    ) -> None:
        _check_columns(function, takes, rows)
        self.function, self.takes, self.rows, self.completions = function, takes, rows, completions
        self.queue = deque(_chunks(takes, rows, batch))
        self._replies: list[float | Fault | None] = [None] * len(completions)
        self._repeated: list[range] = []

    def arguments(self, chunk: Chunk) -> dict[str, Any]:
        """Return the arguments of a chunk's call, lists of one entry a completion."""
        rows = [self.rows[i] for i in chunk.indices]
        texts = {
            "prompts": [row.prompt for row in rows],
            "completions": [self.completions[i] for i in chunk.indices],
        }
        return {name: [row.columns[name] for row in rows] for name in chunk.columns} | {
            name: texts[name] for name in self.takes.texts
        }

    def settle(self, chunk: Chunk, reply: Reply) -> None:
        """Take the reply of a call; a call that failed as a whole is put back in single ones."""
        if not isinstance(reply, Fault):
            for index, outcome in zip(chunk.indices, reply, strict=True):
                self._replies[index] = outcome
        elif len(chunk.indices) == 1:
            self._replies[chunk.indices[0]] = _with_lengths(reply, chunk.whole)
        else:
            self._repeated.append(chunk.indices)
            singles = [Chunk(range(i, i + 1), chunk.columns, reply) for i in chunk.indices]
            self.queue.extendleft(reversed(singles))

    def scores(self) -> Scores:
        """Return the scores, once every call is settled."""
        replies = enumerate(self._replies)
        failures = [
            Failure(i, r.kind, r.text, r.source) for i, r in replies if isinstance(r, Fault)
        ]
        failed = {failure.index for failure in failures}
        return Scores(
            self.function,
            [None if isinstance(reply, Fault) else reply for reply in self._replies],
            failures,
            recovered=sum(failed.isdisjoint(indices) for indices in self._repeated),
        )


def _check_columns(function: str, takes: Columns, rows: Sequence[Row]) -> None:
    for row in rows:
        missing = sorted(takes.needed - row.columns.keys())
        if missing:
            raise RewardError(
                f"the reward function `{function}` needs the column `{missing[0]}`, which the "
                f"row lacks",
                where=f"  {row.where} (row {row.id})",
                hint=f"add it to the data, or give `{missing[0]}` a default in the function",
            )


def _chunks(takes: Columns, rows: Sequence[Row], batch: int) -> list[Chunk]:
    """Cut at `batch`, and where the columns change: a default stands for a column row by row."""
    present = [takes.of(row.columns) for row in rows]
    chunks = []
    for names, run in itertools.groupby(range(len(rows)), key=present.__getitem__):
        indices = list(run)
        first, end = indices[0], indices[-1] + 1
        starts = range(first, end, batch)
        chunks += [Chunk(range(i, min(i + batch, end)), names) for i in starts]
    return chunks


def _with_lengths(fault: Fault, whole: Fault | None) -> Fault:
    """Add the lengths of the call that had several completions: they say more than 0 of 1."""
    if fault.kind != "wrong_count" or whole is None or whole.kind != "wrong_count":
        return fault
    return attrs.evolve(fault, text=f"{fault.text}, and before that {whole.text}")
