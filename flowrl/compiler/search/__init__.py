"""The exact search of a placement: pools, GPUs, layouts, residency."""

from flowrl.compiler.search.best import best_placement
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import Bytes, Costs, Seated
from flowrl.compiler.search.found import Found, PlacedPool, PlacedSeat
from flowrl.compiler.search.models import ModelCosts
from flowrl.compiler.search.search import search

__all__ = [
    "Bytes",
    "Constraints",
    "Costs",
    "Found",
    "ModelCosts",
    "PlacedPool",
    "PlacedSeat",
    "Seated",
    "best_placement",
    "search",
]
