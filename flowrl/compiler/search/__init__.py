"""The exact search of a placement: pools, GPUs, layouts, residency."""

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import Bytes, Costs, Use
from flowrl.compiler.search.found import Found, PlacedPool, PlacedSeat
from flowrl.compiler.search.search import best_placement

__all__ = [
    "Bytes",
    "Constraints",
    "Costs",
    "Found",
    "PlacedPool",
    "PlacedSeat",
    "Residency",
    "Use",
    "best_placement",
]
