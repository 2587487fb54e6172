"""How tensor and expert parallelism divide one parameter."""

import math
from enum import Enum

from flowrl.compiler.shapes import ModelShape, Parameter, ParameterKind
from flowrl.ir.sections import Section, Span, joined_heads

Kind = ParameterKind

COLUMNS = frozenset(
    {Kind.QUERY, Kind.KEY, Kind.VALUE, Kind.QKV, Kind.QKV_BY_HEAD, Kind.GATE, Kind.UP, Kind.GATE_UP}
)
"""Divided along their outputs, as are their biases (Megatron-LM, arXiv:1909.08053, sec. 3)."""

ROWS = frozenset({Kind.OUTPUT, Kind.DOWN})
"""Divided along their inputs; their biases are added once, after the sum, and are replicated."""

VOCABULARY = frozenset({Kind.EMBEDDING, Kind.HEAD})
"""Divided along the vocabulary."""

VOCABULARY_MULTIPLE = 64
"""vLLM pads the vocabulary to a multiple of it, whatever the number of ranks."""


class Storage(Enum):
    """Who stores a model: it decides which parameters are one tensor, and what is padded."""

    MODEL = "model"
    """As in transformers' state dict: each parameter by itself, no padding."""
    ENGINE = "engine"
    """As in vLLM: query, key, value and gate, up are one tensor each; the vocabulary is padded."""
    LOADER = "loader"
    """As vLLM's loaders take it: what `ENGINE` has, each parameter by itself, without padding."""


def tp_dim(parameter: Parameter) -> int | None:
    """Return the dim that tensor parallelism divides; None for what it replicates."""
    if parameter.kind in COLUMNS | VOCABULARY:
        return parameter.output
    return parameter.input if parameter.kind in ROWS else None


def sections(parameter: Parameter, shape: ModelShape) -> tuple[Section, ...]:
    """Return the sections of the dim that tensor parallelism divides."""
    dim = tp_dim(parameter)
    assert dim is not None, "it is divided"
    size, kind = parameter.shape[dim], parameter.kind
    if kind is Kind.QKV:
        return joined_heads(size, shape.heads, shape.kv_heads)
    if kind is Kind.GATE_UP:
        return Section(size // 2), Section(size // 2)
    if kind in (Kind.KEY, Kind.VALUE):
        return (Section(size, size // shape.kv_heads, shared=True),)
    if kind in (Kind.QUERY, Kind.QKV_BY_HEAD, Kind.OUTPUT):
        return (Section(size, size // shape.heads),)
    return (Section(size),)


def vocabulary_span(size: int, index: int, ranks: int, storage: Storage) -> Span:
    """Return a rank's tokens; with an engine's own storage, and padding past the end of them."""
    if storage is Storage.MODEL:
        return chunk(size, index, ranks)
    padded = math.ceil(size / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    each = math.ceil(padded / ranks)
    start, stop = index * each, (index + 1) * each
    return (start, stop) if storage is Storage.ENGINE else (min(start, size), min(stop, size))


def chunk(size: int, index: int, ranks: int) -> Span:
    """Return a chunk by torch's rule: all of the rounded-up size, the last ones short or empty."""
    each = math.ceil(size / ranks)
    return min(index * each, size), min((index + 1) * each, size)


def even(size: int, index: int, ranks: int) -> Span:
    """Return a share that differs from others by at most one; the first ones are larger."""
    each, more = divmod(size, ranks)
    start = index * each + min(index, more)
    return start, start + each + (index < more)
