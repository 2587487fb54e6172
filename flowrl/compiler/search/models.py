"""The costs of a search as the models of seconds, bytes and reshards predict them."""

from collections.abc import Mapping, Sequence
from math import inf

import attrs

from flowrl.compiler.cost.cache import lacking_bytes
from flowrl.compiler.cost.links import slowest
from flowrl.compiler.cost.memory import Memory, Residency, memory
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.residency import sleep_seconds, wake_seconds
from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.cost.weights import shard_count
from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage
from flowrl.compiler.reshard import reshard_cost
from flowrl.compiler.search.candidates import candidates
from flowrl.compiler.search.costs import Bytes, Seated
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Seat, Task
from flowrl.ir.layout import Layout

CACHES = (1.0, 0.5, 0.25, 0.125)
"""Shares of the largest KV cache that a search tries."""


@attrs.frozen
class ModelCosts:
    """What a target predicts for the tasks of a step.

    Attributes:
        target: machines, models, the work of a step, measured speeds.
        tasks: of the step.
    """

    target: Target
    tasks: tuple[Task, ...]

    @property
    def machines(self) -> Machines:
        """The GPUs."""
        return self.target.machines

    def layouts(self, seat: Seat, ranks: range) -> Sequence[Layout]:
        """Return the layouts that a seat may have."""
        machines = self.machines
        per_node = machines.nodes[machines.node(ranks[0])].count
        return candidates(seat.use, self._shape(seat), len(ranks), per_node)

    def cache_shares(self, seat: Seat) -> Sequence[float]:
        """Return shares of the KV cache for a seat that generates; what is reserved is all used."""
        reserve = self.target.workload.settings(seat.role).reserve
        return CACHES if seat.use == "generate" and reserve is None else CACHES[:1]

    def residencies(self, seat: Seat) -> Sequence[Residency]:
        """Return what a seat may do; weights that train have no other place to come from."""
        kept: tuple[Residency, ...] = ("resident", "offload")
        return kept if seat.use == "train" else (*kept, "drop", "alias")

    def seconds(self, task: Task, seated: Seated) -> float:
        """Return the seconds of all turns of a task."""
        return self.spent(task, seated).seconds * task.times

    def spent(self, task: Task, seated: Seated) -> Spent:
        """Return the seconds of one execution of a task, by what they are spent on."""
        shape, cache_share = self._shape(seated.seat), seated.cache_share
        return seconds(task, shape, seated.layout, seated.ranks, self.target, cache_share)

    def memory(self, seated: Seated, residency: Residency) -> Bytes:
        """Return the bytes of a seat."""
        took = self.itemised(seated)
        return Bytes(
            took.awake(residency).total, took.asleep(residency).total, took.host(residency)
        )

    def items(self, seated: Seated, residency: Residency) -> Mapping[str, int]:
        """Return the bytes awake, by what they are."""
        return self.itemised(seated).awake(residency).items

    def capacity(self, ranks: range) -> tuple[int, int]:
        """Return the bytes of a GPU, and its share of the host's."""
        node = self.machines.nodes[self.machines.node(ranks[0])]
        return node.gpu.usable_bytes, node.host_memory_bytes // node.count

    def wake(self, seated: Seated, residency: Residency) -> tuple[float, float]:
        """Return the seconds between host and GPUs."""
        took, changed = self.itemised(seated), seated.seat.use == "train"
        return (
            wake_seconds(took, residency, seated.ranks, self.target),
            sleep_seconds(took, residency, seated.ranks, self.target, changed=changed),
        )

    def reshard(self, source: Seated, target: Seated) -> tuple[int, float]:
        """Return the bytes over links, and the seconds, of the exact sends."""
        ends = self.sharding(source), self.sharding(target)
        sent = self.target.trained(target.seat.role)
        size, took = reshard_cost(sent, *ends, self.machines)
        return size, took / self.links(target.ranks)

    def links(self, ranks: range) -> float:
        """Return the share of a link's speed that weights reach on their way to ranks."""
        gpu = slowest(self.machines, ranks)
        return self.target.profile.of(gpu.name, "reshard").links

    def reshard_floor(self, source: Seated, target: Seated) -> tuple[int, float]:
        """Return what ranks lack on average, at the fastest link there could be.

        A rank needs at least its even part of the model; on the same ranks it holds at most what
        the fullest rank of the source does.
        """
        shape, layout = self.target.trained(target.seat.role), target.layout
        divided = layout.pp * layout.tp * layout.fsdp * layout.ep
        held = shard_count(shape, source.layout) if source.ranks == target.ranks else 0
        lacks = max(0.0, shape.count / divided - held)
        size = lacks * self._sent_bytes(target.seat)
        gpu = self.machines.gpu(target.ranks[0])
        fastest = max(gpu.peer_bytes_per_s, gpu.network_bytes_per_s) * self.links(target.ranks)
        return int(size * len(target.ranks)), size / fastest

    def sharding(self, seated: Seated) -> Sharding:
        """Return where the weights lie that a seat trains or is sent, as its engine stores them."""
        storage = Storage.ENGINE if seated.seat.use == "generate" else Storage.MODEL
        return Sharding(seated.layout, seated.ranks, storage, self._sent_bytes(seated.seat))

    def aliases(self, source: Seated, target: Seated) -> bool:
        """Return whether each rank trains whole what it needs, so that both can share storage.

        What samples does so on one GPU, and if its engine lends its tensors.
        """
        whole = source.layout == target.layout and source.layout.fsdp == 1
        if target.seat.use != "generate":
            return whole
        role = target.seat.role
        lends = self.target.workload.settings(role).lends and role not in self.target.adapters
        return whole and lends and target.layout.size == 1

    def itemised(self, seated: Seated) -> Memory:
        """Return the bytes of a seat, by what they are."""
        seat, layout, ranks = seated.seat, seated.layout, seated.ranks
        most = max((task.sequences for task in self.tasks if task.seat == seat), default=inf)
        shape, cache_share = self._shape(seat), seated.cache_share
        held = attrs.evolve(seat, use="score") if self.averages(seat) else seat
        return memory(held, shape, layout, ranks, self.target, most, cache_share)

    def averages(self, seat: Seat) -> bool:
        """Return whether a seat that trains is never updated: a mean (`ema`) has weights alone."""
        kinds = {task.kind for task in self.tasks if task.seat == seat}
        return seat.use == "train" and "ema" in kinds and "update" not in kinds

    def lacks(self, seated: Seated) -> int:
        """Return the bytes that an engine's reserve lacks to hold its longest sequence."""
        seat = seated.seat
        if seat.use != "generate":
            return 0
        where = seated.layout, seated.ranks, self.target
        return lacking_bytes(Rank.of("generate", seat.role, self._shape(seat), *where))

    def _shape(self, seat: Seat) -> ModelShape:
        return self.target.shapes[seat.role]

    def _sent_bytes(self, seat: Seat) -> int:
        """Return the bytes of a number that is sent after an update; see `Rank.weight_bytes`."""
        settings = self.target.workload.settings(seat.role)
        adapts = seat.role in self.target.adapters
        return settings.gradient_bytes if adapts else settings.weight_bytes
