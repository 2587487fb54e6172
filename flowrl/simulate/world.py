"""Simulated time: the controller's clock, what workers did when, and which of them will die."""

from collections.abc import Sequence
from random import Random
from typing import Any

import attrs

from flowrl.runtime.pools.failures import WorkerDied


@attrs.frozen(eq=False)
class Span:
    """Something that workers did.

    Attributes:
        workers: `(pool, index)` of each.
        name: what it was.
        start: in seconds.
        end: in seconds.
        step: of the run, from 0.
    """

    workers: Sequence[tuple[str, int]]
    name: str
    start: float
    end: float
    step: int


@attrs.frozen(eq=False)
class Flow:
    """Something that went from one worker to another.

    Attributes:
        name: what it was.
        source: `(pool, index)`.
        target: `(pool, index)`.
        start: when it left, in seconds.
        end: when it arrived, in seconds.
    """

    name: str
    source: tuple[str, int]
    target: tuple[str, int]
    start: float
    end: float


@attrs.frozen(eq=False)
class Reply:
    """A reply to come.

    Attributes:
        at: when it arrives, in seconds.
        value: what it says.
        died: whether the worker died before it replied; `at` says when.
    """

    at: float
    value: Any = None
    died: bool = False


@attrs.define(eq=False)
class World:
    """What simulated workers share. It is the `Replies` of their controller.

    As workers do what they are told in order, and are told of nothing before it was made, the time
    of each event is known when the controller causes it: no queue of events is needed.

    Attributes:
        rng: of all that is drawn.
        call: seconds that the controller takes to call a worker.
        now: the controller's clock, in seconds.
        step: of the run, from 0.
        rounds: that `sample_until` takes in this step.
        spans: what was done, in the order of the calls.
        flows: what was sent.
        death: when the next worker dies, and which; None if none does.
    """

    rng: Random
    call: float
    now: float = 0.0
    step: int = 0
    rounds: int = 1
    spans: list[Span] = attrs.field(factory=list)
    flows: list[Flow] = attrs.field(factory=list)
    death: tuple[float, tuple[str, int]] | None = None

    def get(self, replies: Any) -> Any:
        """Wait for replies: the controller's clock goes on to the last of them."""
        several = replies if isinstance(replies, list) else [replies]
        self.now = max([self.now, *(reply.at for reply in several)])
        if any(reply.died for reply in several):
            raise WorkerDied
        values = [reply.value for reply in several]
        return values if isinstance(replies, list) else values[0]

    def arrived(self, replies: Sequence[Reply]) -> bool:
        """Return whether all are there."""
        return all(reply.at <= self.now for reply in replies)

    def cut(self) -> None:
        """Forget what workers would have done after now."""
        done = [span for span in self.spans if span.start < self.now]
        self.spans[:] = [attrs.evolve(span, end=min(span.end, self.now)) for span in done]
        self.flows[:] = [flow for flow in self.flows if flow.end <= self.now]

    def reply(self, workers: Sequence[tuple[str, int]], at: float, value: Any) -> Reply:
        """Return the reply of what these workers do until `at`, unless one of them dies before."""
        if self.death and at > self.death[0] and self.death[1] in workers:
            return Reply(self.death[0], died=True)
        return Reply(at, value)
