"""The blocks that layers are made of, as parameters without a prefix."""

from collections.abc import Iterable, Iterator

import attrs

from flowrl.compiler.shapes.dimensions import Dimensions, Latent
from flowrl.compiler.shapes.parameter import Parameter, ParameterKind

Kind = ParameterKind
Block = Iterator[Parameter]


def linear(name: str, kind: Kind, out: int, into: int, *, bias: bool = False) -> Block:
    """A `torch.nn.Linear`: f32[output, input]."""
    yield Parameter(f"{name}.weight", (out, into), kind, output=0, input=1)
    if bias:
        yield Parameter(f"{name}.bias", (out,), kind, output=0)


def transposed(name: str, kind: Kind, out: int, into: int) -> Block:
    """A `Conv1D` of GPT-2: f32[input, output], with a bias."""
    yield Parameter(f"{name}.weight", (into, out), kind, output=1, input=0)
    yield Parameter(f"{name}.bias", (out,), kind, output=0)


def stacked(name: str, kind: Kind, experts: int, out: int, into: int) -> Block:
    """The matrices of all experts in one tensor: f32[expert, output, input]."""
    yield Parameter(name, (experts, out, into), kind, experts=0, output=1, input=2)


def norm(name: str, size: int, *, bias: bool = False) -> Block:
    """A layer norm, or a root-mean-square norm without bias."""
    yield Parameter(f"{name}.weight", (size,), Kind.NORM)
    if bias:
        yield Parameter(f"{name}.bias", (size,), Kind.NORM)


def table(name: str, kind: Kind, rows: int, hidden: int, *, tied: bool = False) -> Block:
    """An embedding: f32[row, hidden]."""
    yield Parameter(f"{name}.weight", (rows, hidden), kind, output=0, input=1, tied=tied)


def under(prefix: str, block: Iterable[Parameter], layer: int | None = None) -> Block:
    """Put a block into a module, of a layer."""
    for parameter in block:
        yield attrs.evolve(parameter, name=f"{prefix}.{parameter.name}", layer=layer)


def attention(d: Dimensions, *, norms: bool = False) -> Block:
    """Grouped-query attention with separate matrices; `norms` of each head's query and key."""
    for name, kind, heads in (
        ("q_proj", Kind.QUERY, d.heads),
        ("k_proj", Kind.KEY, d.kv_heads),
        ("v_proj", Kind.VALUE, d.kv_heads),
    ):
        yield from linear(name, kind, heads * d.head_dim, d.hidden, bias=d.qkv_bias)
    yield from linear("o_proj", Kind.OUTPUT, d.hidden, d.heads * d.head_dim, bias=d.output_bias)
    if norms:
        yield from norm("q_norm", d.head_dim)
        yield from norm("k_norm", d.head_dim)


def latent_attention(d: Dimensions, m: Latent) -> Block:
    """Multi-head latent attention (arXiv:2405.04434, eq. 9-19)."""
    query = d.heads * (m.nope + m.rope)
    if m.query_rank:
        yield from linear("q_a_proj", Kind.LATENT, m.query_rank, d.hidden, bias=d.qkv_bias)
        yield from norm("q_a_layernorm", m.query_rank)
        yield from linear("q_b_proj", Kind.QUERY, query, m.query_rank)
    else:
        yield from linear("q_proj", Kind.QUERY, query, d.hidden)
    down = m.kv_rank + m.rope
    yield from linear("kv_a_proj_with_mqa", Kind.LATENT, down, d.hidden, bias=d.qkv_bias)
    yield from norm("kv_a_layernorm", m.kv_rank)
    # each head's key and value stand together: heads split it as they split queries
    yield from linear("kv_b_proj", Kind.QUERY, d.heads * (m.nope + m.value), m.kv_rank)
    yield from linear("o_proj", Kind.OUTPUT, d.hidden, d.heads * m.value, bias=d.output_bias)


def gated(hidden: int, inner: int, *, bias: bool = False) -> Block:
    """A gated feed-forward layer with separate matrices."""
    yield from linear("gate_proj", Kind.GATE, inner, hidden, bias=bias)
    yield from linear("up_proj", Kind.UP, inner, hidden, bias=bias)
    yield from linear("down_proj", Kind.DOWN, hidden, inner, bias=bias)


def experts(hidden: int, count: int, inner: int) -> Block:
    """A router and the experts that it picks from."""
    yield from linear("gate", Kind.ROUTER, count, hidden)
    yield from stacked("experts.gate_up_proj", Kind.GATE_UP, count, 2 * inner, hidden)
    yield from stacked("experts.down_proj", Kind.DOWN, count, hidden, inner)
