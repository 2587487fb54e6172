"""What any reshard must move at least."""

from flowrl.compiler.layouts import Bundle, Shard
from flowrl.compiler.reshard.planning import Route
from flowrl.ir.box import common, elements


def lower_bound(route: Route, classes: tuple[tuple[Bundle, ...], ...]) -> int:
    """Return the bytes that ranks need and don't hold, added up rank by rank.

    It knows nothing of who sends what.
    """
    return route.sent_bytes * sum(len(alike) * _lacking(route, alike[0]) for alike in classes)


def _lacking(route: Route, bundle: Bundle) -> int:
    have, need = (p.shards(bundle, route.shape) for p in (route.src, route.dst))
    return sum(_lacks(shards, have.get(rank, ())) for rank, shards in need.items())


def _lacks(need: tuple[Shard, ...], have: tuple[Shard, ...]) -> int:
    needed = [piece for shard in need for piece in shard.pieces]
    held = [piece for shard in have for piece in shard.pieces]
    shared = (common(a.box, b.box) for a in needed for b in held if a.parameter == b.parameter)
    return sum(elements(piece.box) for piece in needed) - sum(elements(b) for b in shared if b)
