"""What the search must be told of seconds and bytes; models and tables of numbers both do."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.hardware import Machines
from flowrl.compiler.tasks import Seat, Task
from flowrl.ir.layout import Layout

RESIDENCIES: tuple[Residency, ...] = ("resident", "offload", "drop", "alias")
"""In the order in which they are preferred among equals."""


@attrs.frozen
class Seated:
    """A seat with its layout over these ranks.

    Attributes:
        seat: a use of a model.
        layout: of its weights.
        ranks: of its pool.
        cache_share: how much of the KV cache that it would take with the GPUs for itself a
            generate seat takes; less lets fewer sequences run at once.
    """

    seat: Seat
    layout: Layout
    ranks: range
    cache_share: float = 1.0


@attrs.frozen
class Bytes:
    """What a seat takes, in bytes of the fullest GPU, and of host memory per GPU.

    Attributes:
        awake: while it works.
        asleep: while another seat of the pool does.
        host: all along.
    """

    awake: int
    asleep: int
    host: int = 0


class Costs(Protocol):
    """Seconds and bytes of seats on ranks of one GPU type.

    They may depend on how many GPUs, of which type, in how many nodes, and for `reshard` on whether
    both lie in one node, but not on which of several equal nodes.
    """

    @property
    def machines(self) -> Machines:
        """The GPUs that there are."""

    def layouts(self, seat: Seat, ranks: range) -> Sequence[Layout]:
        """Return the layouts that a seat may have, in order of preference among equals."""

    def cache_shares(self, seat: Seat) -> Sequence[float]:
        """Return the shares of its largest KV cache that a seat may take, the largest first."""

    def residencies(self, seat: Seat) -> Sequence[Residency]:
        """Return what a seat may do while another works."""

    def seconds(self, task: Task, seated: Seated) -> float:
        """Return the seconds of all turns of a task in a step."""

    def memory(self, seated: Seated, residency: Residency) -> Bytes:
        """Return the bytes of a seat."""

    def items(self, seated: Seated, residency: Residency) -> Mapping[str, int]:
        """Return what the bytes awake are made of."""

    def capacity(self, ranks: range) -> tuple[int, int]:
        """Return the bytes that seats may take of one GPU, and of host memory per GPU."""

    def wake(self, seated: Seated, residency: Residency) -> tuple[float, float]:
        """Return the seconds to bring back what a seat let go, and to let it go."""

    def reshard(self, source: Seated, target: Seated) -> tuple[int, float]:
        """Return the bytes over links, and the seconds, to bring weights from where they train."""

    def reshard_floor(self, source: Seated, target: Seated) -> tuple[int, float]:
        """Return bytes and seconds that `reshard` doesn't stay under, at once; nothing will do."""

    def aliases(self, source: Seated, target: Seated) -> bool:
        """Return whether the target can read the weights of the source where they lie."""
