"""Bytes of activations of one token in one layer, counted op by op.

The counts follow Korthikanti et al. 2022 (arXiv:2205.05198, sec. 4.1), for layers of today:
root-mean-square norms computed in float32, rotary positions, fused attention, gated feed-forward
layers, no dropout; bfloat16 between ops. `h` is the hidden size, `q` and `k` the queries' and the
keys' size on a rank, `f` the inner size of the feed-forward layer on a rank (of a mixture: of all
the experts of a token), `n` what of the hidden size is on a rank outside of the matrices: tensor
parallelism divides norms and residuals by tokens (sec. 4.2.2 there).
"""

from functools import cache

import attrs

from flowrl.compiler.shapes import AdapterShape, ModelShape
from flowrl.ir.layout import Layout

LOGIT_TRAVEL = 14
"""Bytes read and written for one logit of a forward pass: bfloat16, to float32, its softmax."""

LOGIT_STORED, LOGIT_PASSING = 14, 6
"""Bytes of one logit that exist at once, with and without its gradient."""


@attrs.frozen
class Widths:
    """The sizes of one layer on a rank: `h`, `n`, `q`, `k` and `f` of the module's docstring."""

    h: float
    n: float
    q: float
    k: float
    f: float

    @classmethod
    def of(cls, shape: ModelShape, layout: Layout) -> "Widths":
        """Return the sizes of a rank's part of a layer."""
        d = shape.dimensions
        inner = d.intermediate
        if d.experts:
            inner = d.experts.per_token * d.experts.intermediate + d.experts.shared
        keys = d.kv_heads * d.head_dim / min(layout.tp, d.kv_heads)
        tp = layout.tp
        return cls(d.hidden, d.hidden / tp, d.heads * d.head_dim / tp, keys, inner / tp)

    def travelled(self, *, compiled: bool) -> float:
        """Return the bytes that a forward pass reads and writes.

        As single kernels each of two norms takes 34 n (to float32 and back, six kernels), each
        residual 6 n, the rotary positions 18 (q + k), the gate 10 f; compiled, each of these reads
        and writes once. Matrices take 14 h, 4 q, 4 k, 6 f; attention 4 q and 4 k.
        """
        if compiled:
            return 14 * self.h + 16 * self.n + 12 * (self.q + self.k) + 12 * self.f
        return 14 * self.h + 80 * self.n + 26 * (self.q + self.k) + 16 * self.f

    @property
    def stored(self) -> float:
        """The bytes that wait for the backward pass.

        Of each norm its input, in float32 too, and its output (8 n); what goes into the matrices
        (4 n, gathered again); queries, keys and values with the attention's output (4 q, 4 k);
        gate, up, and the gate's activation and product (8 f).
        """
        return 20 * self.n + 4 * (self.q + self.k) + 8 * self.f

    @property
    def passing(self) -> float:
        """The bytes that exist at once in a layer whose backward pass never comes."""
        return 8 * self.h + 4 * (self.q + self.k) + 6 * self.f


@attrs.frozen
class AdapterWidths:
    """What an adapter has beside one layer, on average over the layers; nothing without one.

    Attributes:
        count: of linear layers that have it.
        rank: of its matrices.
        inputs: columns of these layers.
        outputs: their rows.
    """

    count: float = 0.0
    rank: int = 0
    inputs: float = 0.0
    outputs: float = 0.0

    @classmethod
    def of(cls, adapter: AdapterShape | None) -> "AdapterWidths":
        """Return what an adapter has beside a layer."""
        return _average(adapter) if adapter else cls()

    def travelled(self, *, compiled: bool) -> float:
        """Return the bytes of a token that its forward pass reads and writes.

        A reads 2 of each input and writes 2 of each rank, B reads these and writes 2 of each
        output; scaling takes 4, adding to what the layer gives 6, compiled both together 6.
        """
        return 2 * self.inputs + 4 * self.rank * self.count + (8 if compiled else 12) * self.outputs

    @property
    def returned(self) -> float:
        """The bytes of a token that its backward pass reads and writes.

        Of each output 4 to scale its gradient, and 4 to read that for B and for what A gave; of
        each input 4 for A and what came in, and 6 to add that to what the layer returns.
        """
        return 10 * self.inputs + 8 * self.outputs

    @property
    def stored(self) -> float:
        """The bytes of a token that wait for its backward pass: what A gives.

        What goes into A goes into its linear layer as well, and waits without an adapter too.
        """
        return 2 * self.rank * self.count


@cache
def _average(adapter: AdapterShape) -> AdapterWidths:
    inside = [p for p in adapter.parameters() if p.layer is not None]
    low = [p for p in inside if ".lora_A." in p.name]
    inputs, every = sum(p.shape[1] for p in low), sum(sum(p.shape) for p in inside)
    outputs = every - inputs - 2 * adapter.rank * len(low)
    return AdapterWidths(
        len(low) / adapter.layers, adapter.rank, inputs / adapter.layers, outputs / adapter.layers
    )
