"""Bounded buffers: how many values can be on their way between pools at once."""

from collections import Counter
from math import ceil, inf

import attrs

from flowrl.compiler.forecast import EdgeForecast, Forecast
from flowrl.compiler.tasks import loop_of
from flowrl.errors import ProgramError
from flowrl.ir.plan import MOST_PENDING

MESSAGE = 2
"""Calls that move values between two pools: one to send, one to receive."""


@attrs.frozen
class Limits:
    """How far workers may be behind the controller.

    Attributes:
        pending: calls that it makes before it waits for the oldest; None is any number.
        steps: that are begun before the first of them has ended: 1, as the metrics of a step are
            waited for; None is any number.
    """

    pending: int | None = MOST_PENDING
    steps: int | None = 1


@attrs.frozen
class Backlog:
    """What can be on its way on one edge.

    Attributes:
        edge: between two pools.
        values: at most so many at once.
    """

    edge: EdgeForecast
    values: int

    @property
    def bytes(self) -> float:
        """Of all of them."""
        return self.values * self.edge.bytes / self.edge.times if self.edge.times else 0.0

    def __str__(self) -> str:
        several = "1 value" if self.values == 1 else f"{self.values} values"
        return f"{several} of {self.edge.what} on edge {self.edge.name}"


def backlogs(predicted: Forecast, limits: Limits | None = None) -> tuple[Backlog, ...]:
    """Return the most that can be in flight on each edge between pools, the most bytes first.

    A producer runs ahead of its consumer as far as the controller lets it. An edge passes a value
    at most once a turn of its loop, or a step; each turn takes at least a message between each two
    pools that exchange anything, and a call for each op that runs a model. So of the calls that may
    be pending, only every so many bring a value of the edge.

    Requires: the lowered graph's tasks and edges. Ensures: a number for every edge between pools.

    Raises:
        ProgramError: nothing bounds an edge; it is named.
    """
    limits = limits or Limits()
    calls = _calls(predicted)
    found = []
    for edge in predicted.edges:
        if edge.crosses:
            most = _most(edge, calls[loop_of(edge.name)], limits)
            if most == inf:
                raise _unbounded(edge)
            found.append(Backlog(edge, int(most)))
    return tuple(sorted(found, key=lambda of: -of.bytes))


def _calls(predicted: Forecast) -> Counter[str]:
    """Return the fewest calls in which the controller walks each graph, by the op around it."""
    between = {(loop_of(e.name), e.source, e.target) for e in predicted.edges if e.crosses}
    calls = Counter(loop_of(each.task.name) for each in predicted.tasks)
    for loop, _, _ in between:
        calls[loop] += MESSAGE
    return calls


def _most(edge: EdgeForecast, calls: int, limits: Limits) -> float:
    """Return the most values of an edge that are on their way at once."""
    pending = inf if limits.pending is None else ceil((limits.pending + 1) / calls)
    steps = inf if limits.steps is None else limits.steps * ceil(edge.times)
    return min(pending, steps)


def _unbounded(edge: EdgeForecast) -> ProgramError:
    return ProgramError(
        f"nothing bounds what is on its way from pool `{edge.source}` to pool `{edge.target}`: "
        f"the one may run ahead of the other by any number of steps",
        where=f"  {edge.name}: {edge.what} ({edge.loc})",
        hint="let the controller wait for the oldest calls, or for the steps before",
    )
