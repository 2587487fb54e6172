"""Blocks: which requests a generator computes together, whatever the number of replicas."""

from collections.abc import Sequence

from flowrl.runtime.engine import Request
from flowrl.runtime.rows.shares import shares


def blocks(
    requests: Sequence[Request], sequences: int | None, workers: int = 1
) -> list[list[Request]]:
    """Divide requests, in order, into blocks of at most `sequences` samples.

    A request is never divided; one with more samples is a block of its own. Rows computed
    together may differ in their last bits from rows computed alone, so blocks depend on the
    program, the data and the run file only.

    Args:
        requests: of all workers.
        sequences: of a block; None for engines that choose themselves what they compute at once:
            each worker has one block, as large as the others'.
        workers: that share the blocks out.
    """
    if sequences is None:
        of = shares([request.n for request in requests], workers)
        return [list(requests[its.start : its.stop]) for its in of if its]
    done: list[list[Request]] = []
    room = 0
    for request in requests:
        if room < request.n or not done:
            done.append([])
            room = sequences
        done[-1].append(request)
        room -= request.n
    return done
