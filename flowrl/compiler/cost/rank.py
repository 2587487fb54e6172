"""One rank of a layout as the formulas see it: its speeds, its share of a model, its groups."""

from collections.abc import Callable
from functools import cached_property

import attrs

from flowrl.compiler.cost.links import Group, group, host_bytes_per_s, slowest
from flowrl.compiler.cost.weights import batches, counts, layer_count, shard_count
from flowrl.compiler.hardware import GPU, Machines
from flowrl.compiler.shapes import AdapterShape, ModelShape
from flowrl.compiler.target import Settings, Speeds, Target, Workload
from flowrl.ir.layout import AXES, Layout

BF16 = 2
"""Bytes of an activation between layers."""


@attrs.frozen(eq=False)
class Rank:
    """The rank that has most to do.

    Attributes:
        role: whose model it runs.
        shape: of the model.
        layout: of its weights.
        ranks: that the layout is over.
        machines: that these are of.
        workload: the step's.
        speeds: that its kind of task reaches.
        host: bytes a second to its host, or from there.
        adapter: that is trained in place of the model, if one is.
        cache_share: how much an engine takes of the KV cache that it would have alone.
    """

    role: str
    shape: ModelShape
    layout: Layout
    ranks: range
    machines: Machines
    workload: Workload
    speeds: Speeds
    host: float
    adapter: AdapterShape | None = None
    cache_share: float = 1.0

    @classmethod
    def of(
        cls,
        kind: str,
        role: str,
        shape: ModelShape,
        layout: Layout,
        ranks: range,
        target: Target,
        cache_share: float = 1.0,
    ) -> "Rank":
        """Return the rank for a kind of task of a role."""
        machines, workload = target.machines, target.workload
        gpu = slowest(machines, ranks)
        speeds, host = target.profile.of(gpu.name, kind), host_bytes_per_s(gpu, target.profile)
        adapter = target.adapters.get(role)
        return cls(
            role, shape, layout, ranks, machines, workload, speeds, host, adapter, cache_share
        )

    @cached_property
    def settings(self) -> Settings:
        """How the role's model is held and run."""
        return self.workload.settings(self.role)

    @cached_property
    def gpu(self) -> GPU:
        """The slowest of the ranks."""
        return slowest(self.machines, self.ranks)

    @cached_property
    def flops(self) -> float:
        """Operations a second in matrices."""
        return self.gpu.bf16_flops * self.speeds.flops

    @cached_property
    def hbm(self) -> float:
        """Bytes a second of its memory."""
        return self.gpu.hbm_bytes_per_s * self.speeds.hbm

    @cached_property
    def batches(self) -> int:
        """Into how many parts the sequences are divided."""
        return batches(self.layout)

    @property
    def hosted(self) -> bool:
        """Whether what is kept of the model is in host memory: it is brought layer by layer."""
        return self.settings.offload == "all" and self.layout.fsdp > 1

    @property
    def trained(self) -> ModelShape:
        """What has gradients: the model, or its adapter."""
        return self.adapter or self.shape

    @property
    def adapter_flops(self) -> float:
        """Operations of one token in the matrices of its adapter."""
        return self.adapter.body_flops if self.adapter else 0.0

    @property
    def table_bytes(self) -> int:
        """Bytes of one of its weights that no linear layer has."""
        return self.settings.table_bytes or self.settings.weight_bytes

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of its weights that passes read; those of an adapter are as wide as gradients."""
        own = shard_count(self.adapter, self.layout) if self.adapter else 0
        return round(self.base_bytes(shard_count)) + own * self.settings.gradient_bytes

    def base_bytes(self, count: Callable[..., float]) -> float:
        """Return the bytes of the model's own weights of which `count` says how many there are.

        Args:
            count: `shard_count` or `layer_count`.
        """
        s, every = self.settings, count(self.shape, self.layout)
        apart = count(self.shape, self.layout, linear=False)
        return (every - apart) * s.weight_bytes + apart * self.table_bytes

    @property
    def layers(self) -> float:
        """Layers of a pipeline stage."""
        return self.shape.layers / self.layout.pp

    def along(self, axis: str) -> Group:
        """Return the ranks that it communicates with along an axis, at the speed they reach."""
        return self._groups[axis]

    @cached_property
    def _groups(self) -> dict[str, Group]:
        found = {axis: group(self.machines, self.layout, axis, self.ranks) for axis in AXES}
        links = self.speeds.links
        return {
            axis: attrs.evolve(its, bytes_per_s=its.bytes_per_s * links)
            for axis, its in found.items()
        }

    @cached_property
    def dense_count(self) -> float:
        """Weights of its stage that are the same for each token, once FSDP has gathered them."""
        each = layer_count(self.shape, self.layout, experts=False)
        return each * self.layers + counts(self.shape).last / self.layout.tp

    @cached_property
    def expert_count(self) -> float:
        """Weights of its stage's experts, once FSDP has gathered them."""
        parts = self.layout.ep * self.layout.tp * self.layout.pp
        return counts(self.shape).experts / parts

    def weights_read(self, tokens: float) -> float:
        """Return the bytes of weights that a forward pass of a stage reads for `tokens` of a rank.

        Of a mixture, the experts that at least one token of the group is routed to; routing is
        taken to be even, and independent from token to token.
        """
        experts = self.shape.dimensions.experts
        touched = 0.0
        if experts:
            missed = 1 - experts.per_token / experts.count
            touched = 1 - missed ** (tokens * self.layout.ep)
        s, own = self.settings, 0.0
        if self.adapter:
            own = layer_count(self.adapter, self.layout) * self.layers
        base = s.weight_bytes * self.dense_count + self.table_bytes * touched * self.expert_count
        return base + s.gradient_bytes * own

    def layer_exchange(self, tokens: float) -> float:
        """Return the seconds that ranks exchange activations in one layer's forward pass.

        Tensor parallelism sums the hidden state after attention and after the feed-forward layer
        (Shoeybi et al. 2019, arXiv:1909.08053, sec. 3); expert parallelism sends each token to its
        experts and back (Lepikhin et al. 2020, arXiv:2006.16668, sec. 3).
        """
        state = tokens * self.shape.hidden * BF16
        seconds = 2 * self.along("tp").all_reduce(state)
        experts = self.shape.dimensions.experts
        if experts and self.layout.ep > 1:
            sparse = 1 - len(experts.dense) / self.shape.layers
            seconds += 2 * sparse * self.along("ep").all_to_all(state * experts.per_token)
        return seconds
