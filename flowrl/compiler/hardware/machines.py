"""Nodes of GPUs, and how fast bytes go between any two of them."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, groupby

import attrs

from flowrl.compiler.hardware.gpus import GPU, GPUS
from flowrl.errors import RunFileError, nearest

HOST_BYTES_PER_GPU = 128 * 2**30
"""Host memory a GPU where none is given; the usual 8-GPU nodes have 1 to 2 TB."""

LATENCY = {"copy": 2e-6, "nvlink": 3.4e-6, "pcie": 5.7e-6, "network": 14e-6}
"""Seconds before the first byte: a kernel's launch; NCCL's rings (its `src/graph/tuning.cc`)."""

MOST_GPUS = 16_384
"""What a term may name; a search over more would take hours."""

TERM = re.compile(r"(?:(?:(\d+)\s*x\s*)?(\d+)\s*x\s*)?([A-Za-z][\w-]*)")
FORM = "write GPUs a node and their kind, `8xH100`; several nodes `2x8xH100`; kinds joined by `+`"


@attrs.frozen
class Node:
    """Some GPUs of one kind on one host.

    Attributes:
        gpu: their kind.
        count: how many.
        host_memory_bytes: for offloaded weights and optimizer states.
        network_bytes_per_s: of the whole node, in one direction.
    """

    gpu: GPU
    count: int
    host_memory_bytes: int = attrs.field()
    network_bytes_per_s: float = attrs.field()

    @host_memory_bytes.default
    def _usual_memory(self) -> int:
        return self.count * HOST_BYTES_PER_GPU

    @network_bytes_per_s.default
    def _usual_network(self) -> float:
        return self.count * self.gpu.network_bytes_per_s

    @property
    def network_share(self) -> float:
        """Bytes a second of network for each GPU."""
        return self.network_bytes_per_s / self.count

    def __str__(self) -> str:
        return f"{self.count}x{self.gpu.name}"


@attrs.frozen(cache_hash=True)
class Machines:
    """Nodes; a rank counts their GPUs, node by node."""

    nodes: tuple[Node, ...]

    @classmethod
    def parse(cls, text: str) -> "Machines":
        """Read `8xH100`, `2x8xH100`, `8xH100 + 4x8xA100-80G`.

        Raises:
            RunFileError: the text has another form, or names an unknown GPU or too many.
        """
        return cls(tuple(node for term in text.split("+") for node in _nodes(term.strip(), text)))

    @property
    def size(self) -> int:
        """How many GPUs there are."""
        return self._ends[-1]

    def node(self, rank: int) -> int:
        """Return the index of a rank's node."""
        return bisect_right(self._ends, rank)

    def gpu(self, rank: int) -> GPU:
        """Return what a rank is."""
        return self.nodes[self.node(rank)].gpu

    def ranks(self, node: int) -> range:
        """Return the ranks of a node."""
        return range(self._ends[node] - self.nodes[node].count, self._ends[node])

    def link(self, a: int, b: int) -> str:
        """Return what joins two ranks: `copy` (the same), `nvlink`, `pcie` or `network`."""
        if a == b:
            return "copy"
        node = self.node(a)
        if node != self.node(b):
            return "network"
        return self.nodes[node].gpu.peer_link

    def bandwidth(self, a: int, b: int) -> float:
        """Return bytes a second from one rank to another, nothing else on the way.

        A copy inside a GPU reads and writes each byte: half of its memory's bandwidth.
        """
        link = self.link(a, b)
        if link == "copy":
            return self.gpu(a).hbm_bytes_per_s / 2
        if link == "network":
            return min(self.nodes[self.node(rank)].network_share for rank in (a, b))
        return self.gpu(a).peer_bytes_per_s

    def latency(self, a: int, b: int) -> float:
        """Return seconds until the first byte arrives."""
        return LATENCY[self.link(a, b)]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(node.count for node in self.nodes))

    def __str__(self) -> str:
        return " + ".join(_terms(self.nodes))


def _nodes(term: str, text: str) -> Iterator[Node]:
    match = TERM.fullmatch(term)
    if not match:
        raise RunFileError(f"`{text}` is not a list of machines: got `{term}` in it", hint=FORM)
    name = match[3]
    gpu = next((gpu for known, gpu in GPUS.items() if known.lower() == name.lower()), None)
    if gpu is None:
        kinds = [known for known in GPUS if known.startswith(name.upper())]
        meant = f" (did you mean {' or '.join(f'`{k}`' for k in kinds)}?)" if kinds else ""
        raise RunFileError(
            f"unknown GPU `{name}` in `{text}`{meant or nearest(name, GPUS)}",
            hint=f"known are {', '.join(GPUS)}",
        )
    nodes, count = int(match[1] or 1), int(match[2] or 1)
    if not nodes or not count:
        raise RunFileError(f"`{term}` in `{text}` is zero machines", hint=FORM)
    if nodes * count > MOST_GPUS:
        raise RunFileError(
            f"`{term}` in `{text}` is {nodes * count} GPUs; plans are made for {MOST_GPUS} of a "
            "kind at most",
            hint="plan for fewer: a step rarely takes so many",
        )
    for _ in range(nodes):
        yield Node(gpu, count)


def _terms(nodes: tuple[Node, ...]) -> Iterator[str]:
    for node, equal in groupby(nodes):
        several = sum(1 for _ in equal)
        yield f"{several}x{node}" if several > 1 else str(node)
