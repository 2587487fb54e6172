"""The processes that call the reward functions."""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flowrl.errors import FlowrlError, RewardError, nearest
from flowrl.rewards.call import Fault, Reply, call, described
from flowrl.rewards.chunks import Chunk, Tally
from flowrl.rewards.process import INSIDE, Worker, first_ready
from flowrl.rewards.resolve import bind, called, columns, name_of
from flowrl.rewards.scores import Scores
from flowrl.rewards.spec import RewardSpec
from flowrl.rewards.worker import Call, Start
from flowrl.runtime.rows import Row


class RewardPool:
    """Reward functions, imported and called in worker processes. For one thread at a time.

    A call that raises, returns what is no list of the right length, or is past its time limit
    (its process is killed and another started) is repeated one completion at a time: only the
    completions that are to blame have no score. The workers end with this process, however it
    ends.

    Args:
        specs: the rewards by name.
        workers: how many processes; the scores do not depend on it.
        folder: where the relative paths of the functions start.

    Raises:
        RewardError: a function cannot be found or imported, or does not take its options.
    """

    def __init__(self, specs: Mapping[str, RewardSpec], *, workers: int = 1, folder: Path) -> None:
        _refuse_inside_worker()
        self._specs = dict(specs)
        names = {name: _importable_name(spec.function) for name, spec in specs.items()}
        remote = {n: (name, specs[n].options) for n, name in names.items() if name is not None}
        self._local = {n: _bound(specs[n]) for n in names.keys() - remote.keys()}
        self._columns = {name: columns(function) for name, function in self._local.items()}
        self._start = _pickled(Start(folder.resolve(), remote), "the rewards' options")
        self._workers = [Worker(self._start) for _ in range(workers if remote else 0)]
        try:
            while any(worker.started is None for worker in self._workers[:1]):
                list(self._replies())
        except BaseException:
            self.close()
            raise
        for worker in self._workers[:1]:
            self._columns |= worker.started or {}

    @property
    def needs(self) -> frozenset[str]:
        """The columns without which some function cannot be called."""
        return frozenset().union(*(takes.needed for takes in self._columns.values()))

    def score(self, name: str, rows: Sequence[Row], completions: Sequence[str]) -> Scores:
        """Score completions with the reward called `name`; rows[i] is completion i's row.

        Raises:
            RewardError: there is no such reward, or a row lacks a column that it needs.
        """
        if name not in self._specs:
            raise RewardError(
                f"there is no reward `{name}`{nearest(name, self._specs)}",
                hint=f"the rewards are {', '.join(f'`{n}`' for n in self._specs) or 'none'}",
            )
        spec = self._specs[name]
        function = spec.function if isinstance(spec.function, str) else called(spec.function)
        tally = Tally(function, self._columns[name], rows, completions, spec.batch)
        if name in self._local:
            self._call_here(self._local[name], tally)
        else:
            self._call_workers(name, spec.time_limit, tally)
        return tally.scores()

    def close(self) -> None:
        """End the processes, and what the functions have started in them."""
        for worker in self._workers:
            if not worker.ended:
                worker.kill()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call_here(self, function: Callable[..., Any], tally: Tally) -> None:
        while tally.queue:
            chunk = tally.queue.popleft()
            tally.settle(chunk, call(function, tally.arguments(chunk), len(chunk.indices)))

    def _call_workers(self, name: str, time_limit: float, tally: Tally) -> None:
        try:
            while tally.queue or any(worker.chunk for worker in self._workers):
                for worker in self._workers:
                    if worker.idle and tally.queue:
                        chunk = tally.queue.popleft()
                        asked = Call(name, tally.arguments(chunk), len(chunk.indices), time_limit)
                        where = tally.rows[chunk.indices[0]].where
                        message = _pickled(asked, f"the columns of {where}")
                        worker.begin(chunk, message, time_limit)
                for chunk, reply in self._replies():
                    tally.settle(chunk, reply)
        finally:
            for worker in self._workers:  # after an error: no late reply may meet the next call
                if worker.chunk:
                    worker.kill()
            self._replace_ended()

    def _replies(self) -> Iterator[tuple[Chunk, Reply]]:
        """Wait for workers that are importing or calling; give the replies to calls."""
        for worker in first_ready([w for w in self._workers if not w.idle]):
            reply, chunk = worker.take(), worker.chunk
            if isinstance(reply, FlowrlError):
                raise reply
            if chunk is not None:
                worker.chunk = None
                yield chunk, reply
            elif isinstance(reply, Fault):
                raise RewardError(f"a reward worker {reply.text} while importing the functions")
            else:
                worker.started = reply
        self._replace_ended()

    def _replace_ended(self) -> None:
        self._workers = [Worker(self._start) if w.ended else w for w in self._workers]


def _importable_name(function: str | Callable[..., Any]) -> str | None:
    return function if isinstance(function, str) else name_of(function)


def _bound(spec: RewardSpec) -> Callable[..., Any]:
    assert not isinstance(spec.function, str), "a string is a name for the workers"
    return bind(called(spec.function), spec.function, spec.options)


def _pickled(message: Start | Call, what: str) -> bytes:
    try:
        return pickle.dumps(message)
    except Exception as error:
        raise RewardError(
            f"{what} cannot be sent to a reward worker: {described(error)}",
            hint="use strings, numbers, lists, dicts or arrays",
        ) from error


def _refuse_inside_worker() -> None:
    if INSIDE in os.environ:
        raise RewardError(
            "a reward function's file starts a run when it is imported",
            hint='put the run under `if __name__ == "__main__":`',
        )
