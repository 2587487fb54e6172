"""What the controller has told workers to do, and has not seen done yet."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from flowrl.ir.graph import Node
from flowrl.ir.plan import MOST_PENDING
from flowrl.runtime.pools.failures import Failure, RowOf, WorkerDied, located, unknown
from flowrl.runtime.pools.lines import Line, Replies
from flowrl.runtime.ranks.agreement import RankMissingError

SOON, LOOKS = 10.0, 100
"""Seconds in which the end of a worker is known, and how often to look in that time."""


@attrs.frozen(eq=False)
class Call:
    """A call whose reply is not checked yet."""

    method: str
    reply: Any
    line: Line
    nodes: tuple[Node, ...]
    row_of: RowOf
    again: bool


class Instructions:
    """Calls to workers, made without waiting and checked later, in order.

    Args:
        source: for each node that is told to workers, itself with its place in the user's files.
        replies: where workers' replies arrive.
    """

    def __init__(self, source: Mapping[Node, Node], replies: Replies) -> None:
        self.source, self.replies = source, replies
        self.pending: list[Call] = []
        self.unchecked = 0

    def tell(
        self,
        line: Line,
        nodes: tuple[Node, ...],
        method: str,
        *args: Any,
        replies: int = 1,
        row_of: RowOf = unknown,
        again: bool = False,
    ) -> Any:
        """Have a worker do something, without waiting; `settle` finds out if it failed.

        `again` says that it is the call before, to another worker of the pool: however many they
        are, all are told before any is waited for.
        """
        if self.unchecked > MOST_PENDING and not again:
            self.settle(len(self.pending) // 2)
        reply = line.call(method, *args, replies=replies)
        self.pending.append(Call(method, reply, line, nodes, row_of, again))
        self.unchecked += not again
        return reply

    def tell_all(
        self,
        lines: Sequence[Line],
        method: str,
        *args: Any,
        nodes: tuple[Node, ...] = (),
        **how: Any,
    ) -> list[Any]:
        """Have all these workers do the same; return their replies to come."""
        return [
            self.tell(line, nodes, method, *args, again=number > 0, **how)
            for number, line in enumerate(lines)
        ]

    def ask(self, line: Line, method: str, *args: Any) -> Any:
        """Return a worker's reply, waiting for all that was told before it."""
        return self.wait(self.tell(line, (), method, *args), line)

    def wait(self, reply: Any, line: Line) -> Any:
        """Return a worker's reply, waiting for the rest of its pool too: it may wait for them."""
        rest = [c for c in self.pending if c.line.pool == line.pool and c.line is not line]
        try:
            return self.replies.get([*(r for c in rest for r in several(c.reply)), reply])[-1]
        except Exception:
            self.settle()
            raise

    def settle(self, count: int | None = None) -> None:
        """Wait until all is done, or the first `count` calls.

        Raises:
            FlowrlError: what failed first, in the order of the program.
        """
        pending, self.pending = self.pending[:count], self.pending[count:] if count else []
        self.unchecked = sum(not call.again for call in self.pending)
        try:
            self.replies.get([reply for call in pending for reply in several(call.reply)])
        except Exception as error:
            raise self._first(pending) from error
        for call in pending:
            if call.line.observe:
                call.line.observe(f"{call.method} returned", self.replies.get(call.reply))

    def _first(self, pending: Sequence[Call]) -> Exception:
        """Return the error of the first call that failed; those after it lacked its results."""
        failures = ((call, error) for call in pending if (error := self._failure(call)))
        call, error = next(failures)
        if _waited(error):
            call, error = self._absent(call, error, [*pending, *self.pending])
        return located(error, call.line, tuple(self.source[n] for n in call.nodes), call.row_of)

    def _failure(self, call: Call) -> Exception | None:
        """Return the error of a call, if it has failed by now."""
        for reply in several(call.reply):  # of several, one is heard to have failed first
            if self.replies.arrived([reply]):
                try:
                    self.replies.get(reply)
                except Exception as error:
                    return error
        return None

    def _absent(
        self, call: Call, error: Exception, pending: Sequence[Call]
    ) -> tuple[Call, Exception]:
        """Return what became of the rank that another one waited for: it is known soon, or never.

        A rank hears of the end of another by their connection, before the controller does. What
        was told after the call that waited fails for lack of results, unless a worker died.
        """
        others = [c for c in _until(call, pending) if c.line is not call.line]
        for _ in range(LOOKS):
            failed = ((c, found) for c in pending if (found := self._failure(c)))
            for other, found in failed:
                if isinstance(found, WorkerDied) or (other in others and not _waited(found)):
                    return other, found
            if not others or self.replies.arrived([r for c in others for r in several(c.reply)]):
                break
            time.sleep(SOON / LOOKS)
        return call, error


def _until(call: Call, pending: Sequence[Call]) -> Sequence[Call]:
    """Return the calls up to one, and those that are the same to other workers."""
    after = range(pending.index(call) + 1, len(pending))
    end = next((number for number in after if not pending[number].again), len(pending))
    return pending[:end]


def _waited(error: Exception) -> bool:
    """Whether a worker failed since another rank did not come."""
    return isinstance(error, Failure) and isinstance(error.error, RankMissingError)


def several(reply: Any) -> list[Any]:
    """Return the replies of a call: of one reply, that alone."""
    return reply if isinstance(reply, list) else [reply]
