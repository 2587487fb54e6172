"""Actions: what becomes of weights and memory before an op, as data that plans carry."""

from collections.abc import Mapping
from enum import StrEnum

import attrs


class Does(StrEnum):
    """What a seat does; a seat is one use of a model in a pool."""

    SLEEP = "sleep"
    """Let caches, gradients and activations go; weights and optimizer stay."""
    OFFLOAD = "offload"
    """Let all go that host memory keeps: what has changed goes there first."""
    DROP = "drop"
    """Let all go; the weights come anew when they are wanted."""
    WAKE = "wake"
    """Take back the memory that was let go."""
    LOAD = "load"
    """Take it back, with what host memory has kept."""
    BRING = "bring"
    """Get the weights as they are where the model is trained."""


LEAVES: Mapping[str, Does] = {
    "resident": Does.SLEEP,
    "alias": Does.SLEEP,
    "offload": Does.OFFLOAD,
    "drop": Does.DROP,
}
"""What a seat does before another one of its pool works, by its residency."""
ENTERS: Mapping[str, Does] = {
    "resident": Does.WAKE,
    "alias": Does.WAKE,
    "offload": Does.LOAD,
    "drop": Does.WAKE,
}
"""What it does before it works again."""


@attrs.frozen
class Action:
    """What a seat does before an op, so that the op has its weights, and room to work.

    Attributes:
        before: the op, as its results are printed: `%9`, or `%16/%0` inside the op `%16`.
        turns: the first turn of the op's loop that it is done before, and the one past the last;
            (0, 1) in no loop.
        pool: where.
        seat: a use of a model, `policy.train`.
        does: what.
        bytes: that the fullest GPU has in use afterwards more than before, each time.
        moved: bytes each time: between each GPU and its host, or of all weights over links.
        seconds: each time.
        by: the `reshard` or `transfer` that brings weights, as printed; "" where the graph brings
            them for another op already.
    """

    before: str
    turns: tuple[int, int]
    pool: str
    seat: str
    does: Does = attrs.field(converter=Does)
    bytes: int = 0
    moved: int = 0
    seconds: float = 0.0
    by: str = ""

    @property
    def times(self) -> int:
        """How often it is done in a step."""
        return self.turns[1] - self.turns[0]
