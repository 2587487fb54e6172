"""Reshards carried out: weights go point to point from one layout into another."""

from flowrl.runtime.reshard.checksums import compare
from flowrl.runtime.reshard.move import Alias, Buffer, CheckedPart, Checks, Copy, Move, Slice
from flowrl.runtime.reshard.wire import Sent, Tensors, Wire, reshard

__all__ = [
    "Alias",
    "Buffer",
    "CheckedPart",
    "Checks",
    "Copy",
    "Move",
    "Sent",
    "Slice",
    "Tensors",
    "Wire",
    "compare",
    "reshard",
]
