"""Seconds and bytes of a seat: of one choice of layout and residency, or the least of several."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.search.costs import Bytes, Costs, Seated
from flowrl.compiler.tasks import Task


@attrs.frozen(eq=False)  # told apart by identity: they are keys of caches, and made once
class Terms:
    """What the choices for one seat come to.

    Attributes:
        seconds: of each of its tasks in a step, in order.
        bytes: on the fullest GPU and the host.
        wake: seconds to come back after another seat had the pool.
        sleep: seconds to make room for it.
    """

    seconds: tuple[float, ...]
    bytes: Bytes
    wake: float
    sleep: float

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """All of them; less is better of each."""
        of = self.bytes
        return (*self.seconds, of.awake, of.asleep, of.host, self.wake, self.sleep)

    def dominates(self, other: "Terms") -> bool:
        """Return whether no number is more than the other's."""
        return all(a <= b for a, b in zip(self.numbers, other.numbers, strict=True))


@attrs.frozen(eq=False)
class Option(Terms):
    """A residency, a layout and a cache for one seat, and what they come to."""

    residency: Residency
    seated: Seated


def least(several: Iterable[Terms]) -> Terms:
    """Return the least of each number: no choice among them comes to less."""
    columns = zip(*(terms.numbers for terms in several), strict=True)
    *seconds, awake, asleep, host, wake, sleep = map(min, columns)
    return Terms(tuple(seconds), Bytes(int(awake), int(asleep), int(host)), wake, sleep)


def fits(pool: Sequence[Terms], capacity: tuple[int, int]) -> bool:
    """Return whether the seats of a pool fit in its GPUs and hosts, whichever works.

    Args:
        pool: of each seat.
        capacity: bytes of a GPU, and of host memory per GPU.
    """
    return excess(pool, capacity) <= 0


def excess(pool: Sequence[Terms], capacity: tuple[int, int]) -> int:
    """Return the bytes that a pool lacks on the GPU at the worst moment, or on the host."""
    gpu, host = capacity
    asleep = sum(terms.bytes.asleep for terms in pool)
    peak = max(asleep - terms.bytes.asleep + terms.bytes.awake for terms in pool)
    return max(peak - gpu, sum(terms.bytes.host for terms in pool) - host)


def options(
    costs: Costs,
    tasks: Sequence[Task],
    several: Sequence[Seated],
    residencies: Sequence[Residency],
    *,
    tied: bool,
) -> tuple[Option, ...]:
    """Return the choices for a seat, less those that another is as good as in every number.

    Args:
        costs: what to ask.
        tasks: of the seat.
        several: the seat with each layout.
        residencies: what it may do while another seat works.
        tied: another seat has the weights too, so that bringing them hangs on the layout: only
            choices of one layout are compared.
    """
    every = list(_options(costs, tasks, several, residencies))
    kept: list[Option] = []
    for option in sorted(every, key=lambda o: o.numbers):  # stable; none dominates one before it
        alike = (o for o in kept if o.residency == option.residency)
        if tied:
            alike = (o for o in alike if o.seated.layout == option.seated.layout)
        if not any(other.dominates(option) for other in alike):
            kept.append(option)
    return tuple(kept)


def _options(
    costs: Costs, tasks: Sequence[Task], several: Sequence[Seated], residencies: Sequence[Residency]
) -> Iterator[Option]:
    for seated in several:
        seconds = tuple(costs.seconds(task, seated) for task in tasks)
        for residency in residencies:
            took = costs.memory(seated, residency)
            wake, sleep = costs.wake(seated, residency)
            yield Option(seconds, took, wake, sleep, residency, seated)
