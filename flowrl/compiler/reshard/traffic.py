"""How many bytes every link carries, and how long the busiest one takes."""

from collections.abc import Iterable, Iterator
from math import lcm

import attrs

from flowrl.compiler.hardware import Machines

Takers = tuple[tuple[int, ...], ...]
"""Ranks in groups: one of each gets a slice from elsewhere, and hands it to the others."""


BUFFER_BYTES = 256 * 2**20
"""What is sent at once, at most."""


@attrs.frozen
class Load:
    """What one link carries.

    Attributes:
        link: in words: `rank 3 sends over nvlink`.
        bytes: how much.
        seconds: at the link's speed.
    """

    link: str
    bytes: int
    seconds: float


class Traffic:
    """Bytes by rank: sent and received, inside nodes and between them, and copied on a GPU."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._sent = {near: [0] * machines.size for near in (True, False)}
        self._received: dict[tuple[bool, Takers, int], list[int]] = {}
        self._copied = [0] * machines.size
        self._longest = 0

    def least_loaded(self, ranks: Iterable[int], *, near: bool) -> tuple[int, ...]:
        """Return ranks in the order of what they send so far over that kind of link."""
        sent = self._sent[near]
        return tuple(sorted(ranks, key=lambda rank: (sent[rank], rank)))

    def send(self, sources: tuple[int, ...], times: int, size: int, *, near: bool) -> None:
        """Count `times` sends of `size` bytes that the sources take in turns."""
        sent = self._sent[near]
        each, more = divmod(times, len(sources))
        for turn, rank in enumerate(sources[: None if each else more]):
            sent[rank] += (each + (turn < more)) * size

    def receive(self, takers: Takers, direct: int, times: int, size: int, *, near: bool) -> int:
        """Count `times` slices of `size` bytes that arrive at every group, as in `Flow`.

        The ranks of a group get them in turns.

        Returns:
            Whose turn is first in every group, modulo its size: who got least so far.
        """
        key = near, takers, direct
        if key not in self._received:
            self._received[key] = [0] * lcm(*map(len, takers))
            self._longest = max(self._longest, (len(takers) - 1) // direct)
        loads = self._received[key]
        first = loads.index(min(loads))
        each, more = divmod(times, len(loads))
        for step in range(len(loads)):
            loads[(first + step) % len(loads)] += (each + (step < more)) * size
        return first

    def copy(self, rank: int, size: int) -> None:
        """Count bytes that a rank copies in its own memory."""
        self._copied[rank] += size

    @property
    def moved(self) -> int:
        """Bytes over links."""
        return sum(
            sum(loads) * sum(map(len, takers)) for (_, takers, _), loads in self._received.items()
        )

    @property
    def copied(self) -> int:
        """Bytes inside GPUs."""
        return sum(self._copied)

    def busiest(self) -> Load:
        """Return the link that takes longest; the others are done by then."""
        return max(self.loads(), key=lambda load: load.seconds, default=Load("nothing moves", 0, 0))

    def seconds(self, buffer: int = BUFFER_BYTES) -> float:
        """Return how long it takes with all links at once; latencies and casts are left out.

        What is passed on goes buffer by buffer, while the next one arrives: the last group in a
        row waits for one buffer for each that stands before it.
        """
        busiest = self.busiest()
        waits = self._longest * min(1.0, buffer / busiest.bytes) if busiest.bytes else 0.0
        return busiest.seconds * (1 + waits)

    def loads(self) -> Iterator[Load]:
        """Yield what each link carries, of those that carry anything."""
        for (verb, near), carried in self._carried().items():
            for rank, size in enumerate(carried):
                if size:
                    kind, speed = self._link(rank, near=near)
                    yield Load(f"rank {rank} {verb} over {kind}", size, size / speed)
        for rank, size in enumerate(self._copied):
            if size:
                seconds = size / self._machines.bandwidth(rank, rank)
                yield Load(f"rank {rank} copies in its memory", size, seconds)

    def _carried(self) -> dict[tuple[str, bool], list[int]]:
        """Return bytes by rank, direction and whether inside the node; with what is passed on."""
        carried = {("sends", near): list(sent) for near, sent in self._sent.items()}
        carried |= {("receives", near): [0] * self._machines.size for near in (True, False)}
        for (near, takers, direct), loads in self._received.items():
            for place, group in enumerate(takers):
                passed_on = place + direct < len(takers)
                for turn, rank in enumerate(group):
                    mine = sum(loads[turn :: len(group)])
                    carried["receives", near][rank] += mine
                    carried["sends", near][rank] += mine * passed_on
                    carried["receives", True][rank] += sum(loads) - mine
                    carried["sends", True][rank] += mine * (len(group) - 1)
        return carried

    def _link(self, rank: int, *, near: bool) -> tuple[str, float]:
        node = self._machines.nodes[self._machines.node(rank)]
        if not near:
            return "the network", node.network_share
        return node.gpu.peer_link, node.gpu.peer_bytes_per_s
