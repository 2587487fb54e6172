"""The seconds of one execution of a task, by what they are spent on."""

from typing import Literal

import attrs

Term = Literal["compute", "memory", "network", "overhead", "tail"]


@attrs.frozen
class Spent:
    """Seconds of one execution.

    Attributes:
        compute: matrices, or reading their weights where that takes longer.
        memory: reading and writing activations, caches and optimizer states.
        network: what communication is not hidden behind the two.
        overhead: scheduling, launching, and pipeline stages that wait.
        tail: decoding after nine in ten sequences of an engine have ended.
    """

    compute: float = 0.0
    memory: float = 0.0
    network: float = 0.0
    overhead: float = 0.0
    tail: float = 0.0

    @property
    def seconds(self) -> float:
        """The sum of all terms."""
        return self.compute + self.memory + self.network + self.overhead + self.tail

    @property
    def terms(self) -> dict[Term, float]:
        """Seconds by term, in the order of the attributes."""
        return {
            "compute": self.compute,
            "memory": self.memory,
            "network": self.network,
            "overhead": self.overhead,
            "tail": self.tail,
        }

    def __add__(self, other: "Spent") -> "Spent":
        mine, its = self.terms, other.terms
        return Spent(**{term: mine[term] + its[term] for term in mine})

    def __mul__(self, times: float) -> "Spent":
        return Spent(**{term: seconds * times for term, seconds in self.terms.items()})
