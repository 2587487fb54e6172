"""Bytes in the words of messages."""

from collections.abc import Mapping
from types import MappingProxyType

NONE: Mapping[str, float] = MappingProxyType({})


def gigabytes(size: float) -> str:
    """Return a number of bytes as `40.8 GB`."""
    return f"{size / 1e9:.1f} GB"


def itemised(items: Mapping[str, float] = NONE, seats: Mapping[str, float] = NONE) -> str:
    """Return what takes memory: `weights 7.6 GB, kv cache 2.1 GB, my_judge.score 0.6 GB`.

    Args:
        items: bytes of one seat, by attributes of `Memory`.
        seats: bytes of others, by their names.
    """
    named = {name.replace("_", " "): size for name, size in items.items()} | dict(seats)
    return ", ".join(f"{name} {gigabytes(size)}" for name, size in named.items() if size)
