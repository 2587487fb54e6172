"""The layouts that a seat may have on so many GPUs: what the search chooses among."""

from collections.abc import Iterator
from functools import cache

import attrs

from flowrl.compiler.layouts import misfit
from flowrl.compiler.shapes import ModelShape
from flowrl.ir.layout import Layout

STAGES = (1, 2, 4, 8)
"""Pipeline stages, where a pool has several nodes."""


def candidates(use: str, shape: ModelShape, gpus: int, per_node: int) -> tuple[Layout, ...]:
    """Return the layouts of a use of a model that fit its heads, columns, layers and experts.

    Tensor and expert parallelism stay within a node, as their exchanges are in every layer; stages
    divide pools of several nodes. `train` shards over all that is left, over each node's part of
    it, or not at all; `generate` copies; `score` does either.

    Args:
        use: `train`, `generate` or `score`.
        shape: of the model.
        gpus: of the pool.
        per_node: GPUs of each of its nodes.
    """
    made = {"train": _train, "generate": _generate, "score": _score}[use](gpus, per_node, shape)
    divided = {layout: attrs.evolve(layout, dp=1, fsdp=1) for layout in made}  # all fit on these
    return tuple(layout for layout, its in divided.items() if _fits(shape, its))


@cache
def _fits(shape: ModelShape, layout: Layout) -> bool:
    return not misfit(shape, layout)


def _train(gpus: int, per_node: int, shape: ModelShape) -> Iterator[Layout]:
    for pp, tp, left in _meshes(gpus, per_node):
        yield Layout(pp=pp, tp=tp, fsdp=left)
        inside = max(1, min(gpus, per_node) // tp)
        if left % inside == 0:
            yield Layout(pp=pp, tp=tp, fsdp=inside, dp=left // inside)
        yield Layout(pp=pp, tp=tp, dp=left)


def _generate(gpus: int, per_node: int, shape: ModelShape) -> Iterator[Layout]:
    for pp, tp, left in _meshes(gpus, per_node):
        yield Layout(pp=pp, tp=tp, dp=left)
        if shape.experts and tp > 1:
            yield Layout(pp=pp, tp=tp, whole_experts=True, dp=left)
            if pp == 1:
                yield Layout(ep=tp, dp=left)


def _score(gpus: int, per_node: int, shape: ModelShape) -> Iterator[Layout]:
    yield Layout(fsdp=gpus)
    for pp, tp, left in _meshes(gpus, per_node):
        if pp == 1:
            yield Layout(tp=tp, dp=left)


def _meshes(gpus: int, per_node: int) -> Iterator[tuple[int, int, int]]:
    """Yield stages, tensor ranks within a node, and how many GPUs are left for each."""
    inside = min(gpus, per_node)
    for pp in STAGES if gpus > per_node else STAGES[:1]:
        for tp in (n for n in range(1, inside + 1) if inside % n == 0):
            if gpus % (pp * tp) == 0:
                yield pp, tp, gpus // (pp * tp)
