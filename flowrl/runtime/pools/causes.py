"""Causes: of calls to workers that failed, which one the others follow from."""

import time
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any

import attrs

from flowrl.errors import FlowrlError
from flowrl.ir.graph import Node
from flowrl.runtime.pools.failures import Failure, RowOf, SenderEndedError, WorkerDied, unknown
from flowrl.runtime.pools.lines import Line, Replies
from flowrl.runtime.ranks.agreement import RankMissingError

SOON, LOOKS = 10.0, 100
"""Seconds in which the end of a worker is known, and how often to look in that time."""


@attrs.frozen(eq=False)
class Call:
    """A call whose reply is not checked yet; `again` as for `Instructions.tell`."""

    method: str
    reply: Any
    line: Line
    nodes: tuple[Node, ...] = ()
    row_of: RowOf = unknown
    again: bool = False


Failed = tuple[Call, Exception]


@attrs.frozen
class Causes:
    """Finds what failed first, in the order of the program, among calls whose replies still come.

    Attributes:
        replies: where they arrive.
    """

    replies: Replies

    def first(
        self, pending: Sequence[Call], later: Sequence[Call], lines: Iterable[Line]
    ) -> Failed:
        """Return the first call that failed; those after it lacked its results.

        Args:
            pending: calls of which one has failed.
            later: those after them.
            lines: to all workers.
        """
        (call, error), calls = next(self._failed(pending)), [*pending, *later]
        if _is(error, SenderEndedError):  # it may have had nothing else to do
            others = [Call("place", line.call("place"), line) for line in lines]
            calls += others
            call, error = self._cause(call, error, calls, others)
        elif _is(error, RankMissingError):
            others = [c for c in _until(call, calls) if c.line is not call.line]
            call, error = self._cause(call, error, calls, others)
        if isinstance(error, WorkerDied):
            call = self._lost(call, calls)
        return call, error

    def _failed(self, calls: Iterable[Call]) -> Iterator[Failed]:
        """Yield the calls that have failed by now, with their errors."""
        for call in calls:
            for reply in several(call.reply):  # of several, one is heard to have failed first
                if self.replies.arrived([reply]) and (error := self._error(reply)):
                    yield call, error
                    break

    def _error(self, reply: Any) -> Exception | None:
        try:
            self.replies.get(reply)
        except Exception as error:
            return error
        return None

    def _arrived(self, calls: Iterable[Call]) -> bool:
        return self.replies.arrived([reply for call in calls for reply in several(call.reply)])

    def _cause(
        self, call: Call, error: Exception, calls: Sequence[Call], others: Sequence[Call]
    ) -> Failed:
        """Return what a failure follows from: it is known soon, or never.

        A worker hears of the end of another by their connection, before the controller does. What
        was told after the call that failed fails for lack of results, unless a worker died.

        Args:
            call: it failed for want of another worker.
            error: that it failed with.
            calls: in which a worker may have died.
            others: of which one may have failed, for a reason of its own.
        """
        for _ in range(LOOKS):
            for other, found in self._failed(calls):
                follows = _is(found, RankMissingError | SenderEndedError)
                if isinstance(found, WorkerDied) or (other in others and not follows):
                    return other, found
            if self._arrived(others):
                break
            time.sleep(SOON / LOOKS)
        return call, error

    def _lost(self, call: Call, calls: Sequence[Call]) -> Call:
        """Return the call in which a worker died: the first that it hasn't done.

        The replies to all that it was told fail one by one, in any order.
        """
        own = [c for c in calls[: calls.index(call) + 1] if c.line is call.line]
        for _ in range(LOOKS):
            if self._arrived(own[:-1]):
                break
            time.sleep(SOON / LOOKS)
        return next(c for c, error in self._failed(own) if isinstance(error, WorkerDied))


def several(reply: Any) -> list[Any]:
    """Return the replies of a call: of one reply, that alone."""
    return reply if isinstance(reply, list) else [reply]


def _is(error: Exception, kind: type[FlowrlError] | UnionType) -> bool:
    """Whether a worker's own error is of a kind."""
    return isinstance(error, Failure) and isinstance(error.error, kind)


def _until(call: Call, calls: Sequence[Call]) -> Sequence[Call]:
    """Return the calls up to one, and those that are the same to other workers."""
    after = range(calls.index(call) + 1, len(calls))
    end = next((number for number in after if not calls[number].again), len(calls))
    return calls[:end]
