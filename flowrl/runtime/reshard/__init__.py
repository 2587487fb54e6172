"""Reshards carried out: weights go point to point from one layout into another."""

from flowrl.runtime.reshard.checksums import compare
from flowrl.runtime.reshard.move import Alias, Buffer, Checks, Copy, Move, Part, Slice
from flowrl.runtime.reshard.wire import Sent, Wire, reshard

__all__ = [
    "Alias",
    "Buffer",
    "Checks",
    "Copy",
    "Move",
    "Part",
    "Sent",
    "Slice",
    "Wire",
    "compare",
    "reshard",
]
