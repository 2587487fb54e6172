"""The rewards of a run: processes that call functions, and servers that are asked."""

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from flowrl.errors import FlowrlError, RewardError, nearest
from flowrl.rewards.asking import ask
from flowrl.rewards.call import Fault, Reply, call, described
from flowrl.rewards.chunks import Chunk, Tally
from flowrl.rewards.client import Client
from flowrl.rewards.process import INSIDE, RewardProcess, first_ready
from flowrl.rewards.resolve import bind, called, columns, name_of, naming, resolve
from flowrl.rewards.routes import Route, Routes, Target
from flowrl.rewards.scores import Policy, Scores
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
from flowrl.rewards.worker import Call, Key, Start, Started
from flowrl.runtime.rows.rows import Row


class RewardPool:
    """Reward functions, imported and called in worker processes, and servers of rewards.

    It is for one thread at a time.

    A call that raises or is past its time limit (its process is killed and another started) is
    repeated one completion at a time: only the completions that are to blame have no score. Of
    a call that returns a list of the wrong length no completion has one. The workers end with
    this process, however it ends.

    Args:
        specs: the rewards by name.
        workers: how many processes; the scores do not depend on it. With 0 this process calls
            the functions, under its debugger and without a time limit. This process asks the
            servers.
        folder: where the relative paths of the functions start.

    Raises:
        RewardError: a function cannot be found or imported, or does not take its options; a
            server cannot be reached, or lacks its key.
    """

    def __init__(
        self, specs: Mapping[str, RewardSpec | ServerSpec], *, workers: int = 1, folder: Path
    ) -> None:
        _refuse_inside_worker()
        self._specs = {n: spec for n, spec in specs.items() if isinstance(spec, RewardSpec)}
        servers = {n: spec for n, spec in specs.items() if isinstance(spec, ServerSpec)}
        self._clients = _reached(servers)
        of_functions = _divide(self._specs) if workers else (_here(self._specs, folder), {})
        self._local, remote = of_functions
        self._imported = [f"`{name}`" for name, _ in remote.values()]
        self._start = _pickled(Start(folder.resolve(), remote), "the rewards' options")
        self._workers = [RewardProcess(self._start) for _ in range(workers if remote else 0)]
        takes = self._started() | {key: columns(f) for key, f in self._local.items()}
        self.routes = Routes(
            {name: _route(name, spec, takes) for name, spec in self._specs.items()}
            | {name: Route(None, {"": _server(spec)}) for name, spec in servers.items()}
        )
        """What rows must have to be scored."""

    def score(
        self,
        name: str,
        rows: Sequence[Row],
        completions: Sequence[str],
        policy: Policy = "drop_group",
    ) -> Scores:
        """Score completions with a reward.

        Args:
            name: the reward's.
            rows: the row of each completion.
            completions: what to score.
            policy: `on_reward_error`; the first failure that it does not go on from is the last.

        Raises:
            RewardError: there is no such reward, or a row lacks a column that it needs.
        """
        if name not in (known := self.routes.of):
            raise RewardError(
                f"there is no reward `{name}`{nearest(name, known)}",
                hint=f"the rewards are {', '.join(f'`{n}`' for n in known) or 'none'}",
            )
        if client := self._clients.get(name):
            batch = client.spec.completions
            return ask(client, Tally(known[name], rows, completions, batch, policy))
        return self._call(
            name, Tally(known[name], rows, completions, self._specs[name].batch, policy)
        )

    def _call(self, name: str, tally: Tally) -> Scores:
        self._renew()
        try:
            self._hand_out(name, tally)
            while not tally.over and (tally.queue or any(w.chunk for w in self._workers)):
                for chunk, reply in self._replies():
                    tally.settle(chunk, reply)
                self._hand_out(name, tally)
        finally:
            self._renew()
        return tally.scores()

    def close(self) -> None:
        """End the processes, and what the functions have started in them; leave the servers."""
        for client in self._clients.values():
            client.close()
        for worker in self._workers:
            if not worker.ended:
                worker.kill()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _started(self) -> Started:
        """Wait for the first worker; the others import the same."""
        try:
            while any(worker.started is None for worker in self._workers[:1]):
                list(self._replies())
        except BaseException:
            self.close()
            raise
        return {key: c for w in self._workers[:1] for key, c in (w.started or {}).items()}

    def _hand_out(self, name: str, tally: Tally) -> None:
        """Begin as many calls as there are idle workers; make those of this process."""
        idle = deque(worker for worker in self._workers if worker.idle)
        while tally.queue and (idle or (name, tally.queue[0].value) in self._local):
            chunk = tally.queue.popleft()
            key, arguments, count = (name, chunk.value), tally.arguments(chunk), len(chunk.indices)
            if key in self._local:
                tally.settle(chunk, call(self._local[key], arguments, count))
                continue
            time_limit = self._specs[name].time_limit
            where = tally.rows[chunk.indices[0]].where
            asked = Call(key, arguments, count, time_limit)
            idle.popleft().begin(chunk, _pickled(asked, f"the columns of {where}"), time_limit)

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
                raise RewardError(
                    f"importing {', '.join(self._imported)} {reply.text}",
                    hint="move slow imports and loading into the function"
                    if reply.kind == "timeout"
                    else "",
                )
            else:
                worker.started = reply
        self._replace_ended()

    def _renew(self) -> None:
        """Replace workers that died between calls, and those that an error left in one."""
        for worker in self._workers:
            if worker.lost:
                worker.kill()
        self._replace_ended()

    def _replace_ended(self) -> None:
        self._workers = [RewardProcess(self._start) if w.ended else w for w in self._workers]


def _reached(servers: Mapping[str, ServerSpec]) -> dict[str, Client]:
    """Return what asks each server; if one can't be reached, none stays open."""
    clients: dict[str, Client] = {}
    try:
        for name, spec in servers.items():
            with naming(name):
                clients[name] = Client(name, spec)
    except BaseException:
        for client in clients.values():
            client.close()
        raise
    return clients


def _route(reward: str, spec: RewardSpec, takes: Started) -> Route:
    targets = {
        value: Target(f"function `{called(function)}`", takes[reward, value])
        for value, function in spec.functions.items()
    }
    return Route(spec.by if isinstance(spec.function, Mapping) else None, targets)


def _server(spec: ServerSpec) -> Target:
    return Target(f"server `{spec.name}`", spec.takes)


def _divide(
    specs: Mapping[str, RewardSpec],
) -> tuple[dict[Key, Callable[..., Any]], dict[Key, tuple[str, Mapping[str, Any]]]]:
    """Return the functions to call in this process, and the names and options of the others."""
    local, remote = {}, {}
    for reward, spec in specs.items():
        for value, function in spec.functions.items():
            if isinstance(function, str):
                remote[reward, value] = (function, spec.options)
            elif name := name_of(function):
                remote[reward, value] = (name, spec.options)
            else:
                local[reward, value] = bind(called(function), function, spec.options)
    return local, remote


def _here(specs: Mapping[str, RewardSpec], folder: Path) -> dict[Key, Callable[..., Any]]:
    """Return all functions, to call in this process."""
    return {
        (reward, value): resolve(function, spec.options, folder)
        if isinstance(function, str)
        else bind(called(function), function, spec.options)
        for reward, spec in specs.items()
        for value, function in spec.functions.items()
    }


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
