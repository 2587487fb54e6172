"""Cutting completions into calls, and putting the replies together again."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs

from flowrl.rewards.call import Fault, Reply
from flowrl.rewards.routes import Route
from flowrl.rewards.scores import Failure, Policy, Scores, is_fatal
from flowrl.runtime.rows.rows import Row

REPEATED = ("exception", "timeout", "refused")
"""Faults of a call with several completions that one of them may be to blame for."""


@attrs.frozen
class Chunk:
    """The completions of one call: of one function, from rows with the same columns.

    Attributes:
        value: what picks the function.
        columns: those of the rows that the function takes.
    """

    indices: tuple[int, ...]
    value: str
    columns: tuple[str, ...]


class Tally:
    """One `score`: the calls to make and what came back.

    The calls depend on the completions, the columns and `batch` alone, so that the scores do
    not depend on the number of workers. After a failure that ends the run under `policy` no
    further call is made.

    Raises:
        RewardError: a row has no function, or lacks a column that its function needs.
    """

    def __init__(
        self,
        route: Route,
        rows: Sequence[Row],
        completions: Sequence[str],
        batch: int,
        policy: Policy,
    ) -> None:
        for row in rows:
            route.check(row)
        self.policy, self.over = policy, False
        self.route, self.rows, self.completions = route, rows, completions
        self.queue = deque(_chunks(route, rows, batch))
        self._replies: list[float | Fault | None] = [None] * len(completions)
        self._repeated: list[tuple[int, ...]] = []

    def arguments(self, chunk: Chunk) -> dict[str, Any]:
        """Return the arguments of a chunk's call, lists of one entry a completion."""
        rows = [self.rows[i] for i in chunk.indices]
        texts = {
            "prompts": [row.prompt for row in rows],
            "completions": [self.completions[i] for i in chunk.indices],
        }
        return {name: [row.columns[name] for row in rows] for name in chunk.columns} | {
            name: texts[name] for name in self.route.targets[chunk.value].takes.texts
        }

    def settle(self, chunk: Chunk, reply: Reply) -> None:
        """Take the reply of a call; if a completion may be to blame, put it back in single ones.

        A list of the wrong length, or no answer, is the fault of the function or server: then all
        completions of the call have no score.
        """
        if isinstance(reply, Fault) and reply.kind in REPEATED and len(chunk.indices) > 1:
            self._repeated.append(chunk.indices)
            singles = [attrs.evolve(chunk, indices=(i,)) for i in chunk.indices]
            self.queue.extendleft(reversed(singles))
            return
        outcomes = [reply] * len(chunk.indices) if isinstance(reply, Fault) else reply
        for index, outcome in zip(chunk.indices, outcomes, strict=True):
            self._replies[index] = outcome
        faults = (each for each in outcomes if isinstance(each, Fault))
        if any(is_fatal(self.policy, fault.kind) for fault in faults):
            self.over = True
            self.queue.clear()

    def scores(self) -> Scores:
        """Return the scores, once every call is settled or a failure ended it."""
        faults = [(i, r) for i, r in enumerate(self._replies) if isinstance(r, Fault)]
        failed = {index for index, _ in faults}
        return Scores(
            [None if isinstance(reply, Fault) else reply for reply in self._replies],
            [Failure(i, f.kind, f.text, self._giver(i), f.source) for i, f in faults],
            recovered=sum(failed.isdisjoint(indices) for indices in self._repeated),
        )

    def _giver(self, index: int) -> str:
        return self.route.targets[self.route.value(self.rows[index])].giver


def _chunks(route: Route, rows: Sequence[Row], batch: int) -> list[Chunk]:
    """Cut at `batch`, after sorting by function and columns: what a row lacks has its default."""
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for index, row in enumerate(rows):
        value = route.value(row)
        columns = route.targets[value].takes.of(row.columns)
        alike.setdefault((value, columns), []).append(index)
    return [
        Chunk(tuple(indices[start : start + batch]), value, columns)
        for (value, columns), indices in alike.items()
        for start in range(0, len(indices), batch)
    ]
