"""What the ops of a graph take: seconds, bytes that arrive, the most memory."""

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import attrs
import torch

from flowrl.ir.graph import Graph, Node
from flowrl.ops.control import ControlOp
from flowrl.ops.model import ModelOp
from flowrl.ops.names import named_nodes

RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts a process's memory."""


@attrs.define
class Measured:
    """What one op took in a step, in one process or in all.

    Attributes:
        times: how often it ran: turns of a scan, rounds of `sample_until`.
        seconds: of all of these; of a transfer, to send and to receive.
        bytes: that arrived at workers, if it moves something.
        memory: of an op that runs a model on a GPU, the most bytes in use there meanwhile; of any
            other, the most bytes that its process had used until it ended, on the host.
    """

    times: int = 0
    seconds: float = 0.0
    bytes: int = 0
    memory: int = 0

    def add(self, seconds: float, *, bytes: int = 0, memory: int = 0, times: int = 1) -> None:
        """Add another time that it ran."""
        self.times += times
        self.seconds += seconds
        self.bytes += bytes
        self.memory = max(self.memory, memory)

    def beside(self, other: Self) -> Self:
        """Return both, of two workers that have run it side by side: the slower one counts."""
        return attrs.evolve(
            self,
            times=max(self.times, other.times),
            seconds=max(self.seconds, other.seconds),
            bytes=self.bytes + other.bytes,
            memory=max(self.memory, other.memory),
        )

    def then(self, other: Self) -> Self:
        """Return both, of two pools: one sends what the other receives."""
        return attrs.evolve(self.beside(other), seconds=self.seconds + other.seconds)


class Measures:
    """Adds up what the nodes of a graph take in this process, until it is cleared.

    Control flow is what its nested graphs are; the ops of a loss belong to its update.

    Args:
        graph: whose nodes are measured; others are not.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        named = list(named_nodes(graph)) if graph else []
        self.names = [name for name, _ in named]
        """Of the nodes, in the order of the graph: a worker's is the controller's."""
        self.numbers = {
            node: i for i, (_, node) in enumerate(named) if not isinstance(node.op, ControlOp)
        }
        self.found: dict[int, Measured] = {}

    def clear(self) -> None:
        """Forget what was measured: a step begins."""
        self.found.clear()

    @contextmanager
    def of(self, node: Node) -> Iterator[None]:
        """Measure what is done inside as one time that a node runs, unless it fails.

        An op that runs a model is waited for on the GPU: its seconds are its own. The next op would
        wait for all but the last kernels of an optimizer anyway.
        """
        number = self.numbers.get(node)
        if number is None:
            yield
            return
        on_gpu = isinstance(node.op, ModelOp) and torch.cuda.is_initialized()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        yield
        if on_gpu:
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        self.at(number).add(took, memory=gpu_peak() if on_gpu else _process_peak())

    def at(self, number: int) -> Measured:
        """Return what is known of a node, to add to it."""
        return self.found.setdefault(number, Measured())

    def sent(self, numbers: Sequence[int], seconds: float) -> None:
        """Add the seconds that it took to send the values of nodes together, alike to each."""
        for number in numbers:
            self.at(number).add(seconds / len(numbers), times=0)

    def received(self, numbers: Sequence[int], seconds: float, bytes: Sequence[int]) -> None:
        """Add the seconds that it took to get the values of nodes together, and their bytes."""
        for number, size in zip(numbers, bytes, strict=True):
            self.at(number).add(seconds / len(numbers), bytes=size)

    def by_name(self) -> dict[str, Measured]:
        """Return what was measured in this process, by the names of ops as printed."""
        return by_name(self.names, [("", self.found)])


Found = Mapping[int, Measured]
"""What a worker has measured, by the numbers of nodes."""


def by_name(names: Sequence[str], workers: Iterable[tuple[str, Found]]) -> dict[str, Measured]:
    """Return what all workers have measured, by the names of ops as printed, in their order.

    Args:
        names: of the nodes.
        workers: the pool of each, and what it found.
    """
    pools: dict[tuple[int, str], Measured] = {}
    for pool, found in workers:
        for number, its in found.items():
            key = number, pool
            pools[key] = pools[key].beside(its) if key in pools else its
    done: dict[str, Measured] = {}
    for number, pool in sorted(pools, key=lambda key: key[0]):
        name, its = names[number], pools[number, pool]
        done[name] = done[name].then(its) if name in done else its
    return done


def gpu_peak() -> int:
    """Return the most bytes in use on the GPU since the peak was reset; 0 without one.

    Those of torch's tensors, and all that it doesn't know: contexts, other libraries, processes.
    """
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    return torch.cuda.max_memory_allocated() + max(0, others)


def _process_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
