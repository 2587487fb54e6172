"""What communication takes along an axis of a layout."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import ceil, log2

import attrs

from flowrl.compiler.hardware import GPU, Machines
from flowrl.compiler.target import Profile
from flowrl.ir.layout import Layout


@attrs.frozen
class Group:
    """Ranks that communicate: those that differ along one axis only.

    Collectives are those of rings, whose bytes are the least possible (Patarasuk and Yuan 2009,
    doi:10.1016/j.jpdc.2008.09.002); the waits are those of trees, as NCCL takes them for small
    messages. Sizes are bytes of the whole tensor.

    Attributes:
        size: how many they are.
        bytes_per_s: from each to the next.
        latency: seconds of one hop.
    """

    size: int
    bytes_per_s: float
    latency: float

    def all_gather(self, size: float) -> float:
        """Return seconds until each rank has all of a tensor of which each held a part."""
        if self.size == 1:
            return 0.0
        share = (self.size - 1) / self.size
        return share * size / self.bytes_per_s + ceil(log2(self.size)) * self.latency

    def reduce_scatter(self, size: float) -> float:
        """Return seconds until each rank has its part of the sum of all ranks' tensors."""
        return self.all_gather(size)

    def all_reduce(self, size: float) -> float:
        """Return seconds until each rank has the sum of all ranks' tensors."""
        return self.reduce_scatter(size) + self.all_gather(size)

    def all_to_all(self, size: float) -> float:
        """Return seconds until each rank has sent its tensor of `size`, an equal part to each."""
        return self.all_gather(size)

    def send(self, size: float) -> float:
        """Return seconds of a message to the next rank."""
        return 0.0 if self.size == 1 else size / self.bytes_per_s + self.latency


@cache
def group(machines: Machines, layout: Layout, axis: str, ranks: range) -> Group:
    """Return the group of the first rank along an axis.

    Between nodes, its ranks of one node use their shares of the network together.
    """
    stride = layout.stride(axis)
    return _joined(machines, [ranks[i * stride] for i in range(layout.axes[axis])])


def _joined(machines: Machines, members: Sequence[int]) -> Group:
    nodes = Counter(machines.node(rank) for rank in members)
    hosts = [machines.nodes[index] for index in nodes]
    inside = min(node.gpu.peer_bytes_per_s for node in hosts)
    latency = max(machines.latency(members[0], rank) for rank in (members[-1], members[0]))
    if len(nodes) == 1:
        return Group(len(members), inside, latency)
    fewest = min(nodes.values())
    across = min(fewest * node.network_share for node in hosts)
    return Group(len(members), min(inside, across) if fewest > 1 else across, latency)


@cache
def slowest(machines: Machines, ranks: range) -> GPU:
    """Return the GPU of the ranks; of several kinds, the least of each number."""
    gpus = list(dict.fromkeys(machines.gpu(rank) for rank in ranks))
    if len(gpus) == 1:
        return gpus[0]
    names = [f.name for f in attrs.fields(GPU) if f.name not in ("name", "source")]
    least = {name: min(getattr(gpu, name) for gpu in gpus) for name in names}
    return GPU(min(gpus, key=lambda gpu: gpu.bf16_flops).name, **least)


def host_bytes_per_s(gpu: GPU, profile: Profile) -> float:
    """Return bytes a second between a GPU and its host, each way; every GPU has its own link."""
    return gpu.pcie_bytes_per_s * profile.of(gpu.name, "offload").links


def crossing_seconds(machines: Machines, size: float, source: range, target: range) -> float:
    """Return the seconds to move `size` bytes of data between pools, spread over their ranks.

    From or to a pool without GPUs they go over the bus of the other's.
    """
    if not source or not target:
        own = source or target
        return size / machines.gpu(own[0]).pcie_bytes_per_s if own else 0.0
    ranks = min(len(source), len(target))
    a, b = source[0], target[0]
    return machines.latency(a, b) + size / (ranks * machines.bandwidth(a, b))
