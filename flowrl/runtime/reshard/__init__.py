"""Reshards carried out: weights go point to point from one layout into another."""

from flowrl.runtime.reshard.move import Alias, Buffer, Copy, Move, Slice
from flowrl.runtime.reshard.wire import Sent, Wire, reshard

__all__ = ["Alias", "Buffer", "Copy", "Move", "Sent", "Slice", "Wire", "reshard"]
