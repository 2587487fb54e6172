"""Keeping a server busy: several requests at once, until every completion has an answer."""

import time
from queue import Empty, SimpleQueue
from threading import Thread

import attrs

from flowrl.rewards.call import Fault
from flowrl.rewards.chunks import Chunk, Tally
from flowrl.rewards.client import Answer, Client
from flowrl.rewards.scores import Scores


def ask(client: Client, tally: Tally) -> Scores:
    """Ask a server for the scores of a tally; return them with the count of retries.

    Requests have threads of their own, which nothing waits for: one that trickles in, or is open
    as the tally ends, is left to itself.
    """
    answers: SimpleQueue[tuple[Chunk, Answer]] = SimpleQueue()
    deadlines: dict[Chunk, float] = {}
    retries = 0
    while not tally.over and (tally.queue or deadlines):
        while tally.queue and len(deadlines) < client.spec.concurrency:
            chunk = tally.queue.popleft()
            deadlines[chunk] = time.monotonic() + client.spec.longest
            _begin(client, tally, chunk, answers)
        chunk, answer = _next(answers, deadlines)
        if deadlines.pop(chunk, None) is not None:  # else it came too late
            tally.settle(chunk, answer.reply)
            retries += answer.retries
    return attrs.evolve(tally.scores(), retries=retries)


def _begin(
    client: Client, tally: Tally, chunk: Chunk, answers: SimpleQueue[tuple[Chunk, Answer]]
) -> None:
    where, count = tally.rows[chunk.indices[0]].where, len(chunk.indices)
    message = client.message(tally.arguments(chunk), where)

    def send() -> None:
        answers.put((chunk, client.ask(message, count)))

    Thread(target=send, daemon=True).start()


def _next(
    answers: SimpleQueue[tuple[Chunk, Answer]], deadlines: dict[Chunk, float]
) -> tuple[Chunk, Answer]:
    """Wait for an answer; after the soonest deadline, that is one of its request."""
    soonest = min(deadlines, key=lambda chunk: deadlines[chunk])
    try:
        return answers.get(timeout=max(0.0, deadlines[soonest] - time.monotonic()))
    except Empty:
        return soonest, Answer(Fault("unanswered", "did not end its answer"), 0)
