"""What the controller has told workers to do, and has not seen done yet."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowrl.ir.graph import Node
from flowrl.ir.plan import MOST_PENDING
from flowrl.runtime.pools.causes import Call, Causes, several
from flowrl.runtime.pools.failures import RowOf, located, unknown
from flowrl.runtime.pools.lines import Line, Replies


class Instructions:
    """Calls to workers, made without waiting and checked later, in order.

    Args:
        source: for each node that is told to workers, itself with its place in the user's files.
        replies: where workers' replies arrive.
    """

    def __init__(self, source: Mapping[Node, Node], replies: Replies) -> None:
        self.source, self.replies = source, replies
        self.pending: list[Call] = []
        self.lines: dict[Line, None] = {}
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
        self.lines[line] = None
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
        call, error = Causes(self.replies).first(pending, self.pending, self.lines)
        return located(error, call.line, tuple(self.source[n] for n in call.nodes), call.row_of)
