"""Losses as trainers see them: a graph evaluated on rows, in one pass or two."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import CAPTURED, FIXED, NEW, Graph
from flowrl.ops.model import Update
from flowrl.runtime.engine import Outputs
from flowrl.runtime.graph.origins import SampleError
from flowrl.runtime.rows.places import children, parents

Run = Callable[[Graph, Sequence[Any]], list[Any]]
"""Evaluate a graph on inputs."""


class GraphLoss:
    """The loss of an `Update` on the rows of one minibatch; see `engine.Loss`."""

    def __init__(
        self, op: Update, captured: Sequence[Any], tokens: Ragged, version: int, run: Run
    ) -> None:
        self.op, self.captured, self.run = op, list(captured), run
        self.lengths, self.version = tokens.lengths, torch.tensor(version)
        self.one_pass = op.passes == 1
        self.fixed = self._prologue() if self.one_pass else []

    def cotangents(self, new: Outputs) -> tuple[Tensor, Outputs]:
        """Return the loss of the whole batch and its gradient in every entry of `new`.

        Raises:
            EngineError: a function in the loss has cut it off from the model.
        """
        leaves = {name: x.detach().requires_grad_() for name, x in new.items()}
        with torch.enable_grad():
            loss = self.run(self.op.loss, self._inputs(self.op.loss, leaves))[0]
        _check_gradient(loss, leaves)
        used = [name for name in leaves if name in self.op.reads]
        gradients = torch.autograd.grad(loss, [leaves[n] for n in used], allow_unused=True)
        pairs = zip(used, gradients, strict=True)
        return loss.detach(), {n: torch.zeros_like(new[n]) if g is None else g for n, g in pairs}

    def part(self, new: Outputs, rows: Tensor) -> Tensor:
        """Return these rows' share of the loss.

        Raises:
            EngineError: a function in the loss has cut it off from the model.
        """
        assert self.op.part is not None
        few = _Rows(self.lengths, rows)
        whole = self._given() | {f"{FIXED}{i}": x for i, x in enumerate(self.fixed)}
        mine = {f"{NEW}{n}": few.new(self._depth(n), new[n]) for n in self.op.reads}
        inputs = [
            mine[name] if name in mine else few.take(whole[name]) for name, _ in self.op.part.inputs
        ]
        try:
            share: Tensor = self.run(self.op.part, inputs)[0]
        except SampleError as error:
            raise few.of_batch(error) from error
        _check_gradient(share, new)
        return share

    def metrics(self, new: Outputs) -> list[float]:
        """Return the loss graph's further outputs, for the whole batch."""
        if len(self.op.loss.outputs) == 1:
            return []
        with torch.no_grad():
            values = self.run(self.op.loss, self._inputs(self.op.loss, new))
        return [float(value) for value in values[1:]]

    def _prologue(self) -> list[Any]:
        assert self.op.prologue is not None
        with torch.no_grad():
            return self.run(self.op.prologue, self._inputs(self.op.prologue, self._shape_of_new()))

    def _shape_of_new(self) -> Outputs:
        """Return zeros in the shape of `new`: the prologue reads no more of it than that."""
        tokens = int(self.lengths[-1].sum())
        sizes = {
            name: len(self.lengths[-1]) if name == "rewards" else tokens for name in self.op.reads
        }
        return {name: torch.zeros(size) for name, size in sizes.items()}

    def _inputs(self, graph: Graph, new: Outputs) -> list[Any]:
        named = self._given()
        for name, x in new.items():
            named[f"{NEW}{name}"] = Ragged(x, self.lengths[: self._depth(name) - 1])
        return [named[name] for name, _ in graph.inputs]

    def _given(self) -> dict[str, Any]:
        """Return the inputs that no forward pass gives, by name."""
        outer = {f"{CAPTURED}{i}": x for i, x in enumerate(self.captured)}
        return outer | {f"{NEW}version": self.version}

    def _depth(self, name: str) -> int:
        """Return how many axes an output of the model has."""
        return len(self.op.loss.input(f"{NEW}{name}").axes)


def _check_gradient(loss: Tensor, new: Outputs) -> None:
    trains = any(x.requires_grad and x.numel() for x in new.values())
    if trains and not loss.requires_grad:
        raise EngineError(
            "the loss has no gradient path to the model's outputs: it would train nothing",
            hint="an `@fl.op` in it cuts it off, by `detach`, `item`, numpy or `no_grad`: compute "
            "with torch alone",
        )


class _Rows:
    """Some rows of a minibatch, as a batch of their own: each alone in every axis above it."""

    def __init__(self, lengths: tuple[Tensor, ...], rows: Tensor) -> None:
        self.depth, self.rows = len(lengths), rows
        self.parents = parents(lengths)
        self.first = self.parents[rows]
        alone = torch.ones(len(rows), dtype=torch.int64)
        self.above = tuple(alone for _ in lengths[:-1])
        self.lengths = (*self.above, lengths[-1][rows])

    def of_batch(self, error: SampleError) -> SampleError:
        """Return the error of one of these rows with its place in the minibatch."""
        row, first = int(self.rows[error.prompt]), int(self.first[error.prompt])
        sample = None if self.depth == 1 else int((self.parents[:row] == first).sum())
        return error.at(first, sample)

    def take(self, value: Any) -> Any:
        """Return a captured value's elements of these rows."""
        if not isinstance(value, Ragged):
            return value
        level = len(value.lengths)
        if level < self.depth - 1:
            return Ragged(value.values[self.first], self.above[:level])
        if level == self.depth - 1:
            return Ragged(value.values[self.rows], self.above)
        inside = children(value.lengths[-1], self.rows)
        return Ragged(value.values[inside], (*self.above, value.lengths[-1][self.rows]))

    def new(self, depth: int, values: Tensor) -> Ragged:
        """Return outputs of these rows, which the engine has computed, with `depth` axes."""
        return Ragged(values, self.lengths[: depth - 1])
