"""Reshards carried out: weights go point to point from one layout into another."""

from flowrl.runtime.reshard.checksums import compare
from flowrl.runtime.reshard.move import Alias, Buffer, Checks, Copy, Move, Part, Slice
from flowrl.runtime.reshard.wire import Sent, Tensors, Wire, reshard

__all__ = [
    "Alias",
    "Buffer",
    "Checks",
    "Copy",
    "Move",
    "Part",
    "Sent",
    "Slice",
    "Tensors",
    "Wire",
    "compare",
    "reshard",
]
