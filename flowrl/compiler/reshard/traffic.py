"""How many bytes every link carries, and how long the busiest one takes."""

from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from flowrl.compiler.hardware import Machines


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
        self._received: dict[bool, Counter[tuple[int, ...]]] = {True: Counter(), False: Counter()}
        self._copied = [0] * machines.size

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

    def receive(self, ranks: tuple[int, ...], size: int, *, near: bool) -> None:
        """Count bytes that each of some ranks receives."""
        self._received[near][ranks] += size

    def copy(self, rank: int, size: int) -> None:
        """Count bytes that a rank copies in its own memory."""
        self._copied[rank] += size

    @property
    def moved(self) -> int:
        """Bytes over links."""
        return sum(sum(sent) for sent in self._sent.values())

    @property
    def copied(self) -> int:
        """Bytes inside GPUs."""
        return sum(self._copied)

    def loads(self) -> Iterator[Load]:
        """Yield what each link carries, of those that carry anything."""
        for near in (True, False):
            for verb, carried in (("sends", self._sent[near]), ("receives", self._arrived(near))):
                for rank, size in enumerate(carried):
                    if size:
                        kind, speed = self._speed(rank, near=near)
                        yield Load(f"rank {rank} {verb} over {kind}", size, size / speed)
        for rank, size in enumerate(self._copied):
            if size:
                seconds = size / self._machines.bandwidth(rank, rank)
                yield Load(f"rank {rank} copies in its memory", size, seconds)

    def busiest(self) -> Load:
        """Return the link that takes longest; the others are done by then."""
        return max(
            self.loads(), key=lambda load: load.seconds, default=Load("nothing moves", 0, 0.0)
        )

    def _arrived(self, near: bool) -> list[int]:
        arrived = [0] * self._machines.size
        for ranks, size in self._received[near].items():
            for rank in ranks:
                arrived[rank] += size
        return arrived

    def _speed(self, rank: int, *, near: bool) -> tuple[str, float]:
        node = self._machines.nodes[self._machines.node(rank)]
        if not near:
            return "the network", node.network_share
        return "nvlink" if node.gpu.nvlink_bytes_per_s else "pcie", node.gpu.peer_bytes_per_s
