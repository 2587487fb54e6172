"""Layouts on ranks: which part of which parameter lies where."""

from flowrl.compiler.layouts.bundles import Bundle, bundles
from flowrl.compiler.layouts.division import Storage
from flowrl.compiler.layouts.fit import check_fit, misfit
from flowrl.compiler.layouts.matched import matched
from flowrl.compiler.layouts.shard import Piece, Shard, located
from flowrl.compiler.layouts.sharding import Sharding

__all__ = [
    "Bundle",
    "Piece",
    "Shard",
    "Sharding",
    "Storage",
    "bundles",
    "check_fit",
    "located",
    "matched",
    "misfit",
]
