"""The controller's lines to workers, and the replies that come back over them.

Ray's workers are one kind (channels.py), simulated ones another (flowrl/simulate): the controller
knows neither.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

Given = int | tuple[str, Any]
"""The id of a value of a worker; or `("number", x)`, a scalar; or `("as it is", x)`."""

Observe = Callable[[str, Any], None]
"""Is shown the name of each call, and its arguments or its reply."""

MOST_DEAD = 200
"""Ids a message: it stays small."""


def worker_name(index: int, pool: str) -> str:
    """Return what messages call a worker."""
    return f"worker {index} of pool `{pool}`"


@attrs.define(eq=False)
class Line(ABC):
    """The controller's line to one worker: calls are carried out in the order they are made.

    Attributes:
        pool: its pool.
        index: which worker of the pool it is.
        place: its process and node, for messages.
        dead: ids of values that nothing will read any more; the next call tells the worker.
        observe: sees every message.
    """

    pool: str
    index: int
    place: str = ""
    dead: list[int] = attrs.field(factory=list)
    observe: Observe | None = None

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        return worker_name(self.index, self.pool) + place

    def call(self, method: str, *args: Any, replies: int = 1) -> Any:
        """Have the worker do something; return its reply to come, or a list of several."""
        dead, self.dead[:] = tuple(self.dead[:MOST_DEAD]), self.dead[MOST_DEAD:]
        if self.observe:
            self.observe(f"{method}()", (method, dead, *args))
        return self.send(method, dead, args, replies)

    @abstractmethod
    def send(self, method: str, dead: Sequence[int], args: Sequence[Any], replies: int) -> Any:
        """Hand a call to the worker, without waiting for it."""


class Replies(Protocol):
    """Where replies arrive."""

    def get(self, replies: Any) -> Any:
        """Wait for a reply, or for each of a list; return what they say.

        Raises:
            Failure: a worker's own error.
            WorkerDied: the worker is gone.
        """
        ...

    def arrived(self, replies: Sequence[Any]) -> bool:
        """Return whether all are there, without waiting."""
        ...
