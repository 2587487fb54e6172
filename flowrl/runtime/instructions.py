"""What the controller has told workers to do, and has not seen done yet."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import ray

from flowrl.ir.graph import Node
from flowrl.runtime.channels import Line
from flowrl.runtime.failures import RowOf, located, unknown

MOST_PENDING = 256
"""Calls that are not checked yet: what they have sent stays in the object store."""


@attrs.frozen(eq=False)
class Call:
    """A call whose reply is not checked yet."""

    method: str
    reply: Any
    line: Line
    nodes: tuple[Node, ...]
    row_of: RowOf


class Instructions:
    """Calls to workers, made without waiting and checked later, in order.

    Args:
        source: for each node that is told to workers, itself with its place in the user's files.
    """

    def __init__(self, source: Mapping[Node, Node]) -> None:
        self.source = source
        self.pending: list[Call] = []

    def tell(
        self,
        line: Line,
        nodes: tuple[Node, ...],
        method: str,
        *args: Any,
        replies: int = 1,
        row_of: RowOf = unknown,
    ) -> Any:
        """Have a worker do something, without waiting; `settle` finds out if it failed."""
        if len(self.pending) > MOST_PENDING:
            self.settle(len(self.pending) // 2)
        reply = line.call(method, *args, replies=replies)
        self.pending.append(Call(method, reply, line, nodes, row_of))
        return reply

    def ask(self, line: Line, method: str, *args: Any) -> Any:
        """Return a worker's reply, waiting for all that was told before it."""
        reply = self.tell(line, (), method, *args)
        try:
            return ray.get(reply)
        except Exception:
            self.settle()
            raise

    def settle(self, count: int | None = None) -> None:
        """Wait until all is done, or the first `count` calls.

        Raises:
            FlowrlError: what failed first, in the order of the program.
        """
        pending, self.pending = self.pending[:count], self.pending[count:] if count else []
        try:
            ray.get([reply for call in pending for reply in _several(call.reply)])
        except Exception as error:
            raise self._first(pending) from error
        for call in pending:
            if call.line.observe:
                call.line.observe(f"{call.method} returned", ray.get(call.reply))

    def _first(self, pending: Sequence[Call]) -> Exception:
        """Return the error of the first call that failed; those after it lacked its results."""
        for call in pending:
            replies = _several(call.reply)
            if len(ray.wait(replies, num_returns=len(replies), timeout=0)[0]) == len(replies):
                try:
                    ray.get(replies)
                except Exception as error:
                    nodes = tuple(self.source[n] for n in call.nodes)
                    return located(error, call.line, nodes, call.row_of)
        raise AssertionError("one of the calls has failed")


def _several(reply: Any) -> list[Any]:
    return reply if isinstance(reply, list) else [reply]
