"""The local executor: runs the steps of a plan in this process."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph, Value
from flowrl.ir.program import Input, Kind
from flowrl.ir.records import Buffer, flatten, leaf_names
from flowrl.ir.types import TensorType
from flowrl.runtime.carried import buffer_inputs, no_rows, write_rows
from flowrl.runtime.host import Handle, Host
from flowrl.runtime.interpret import Interpreter
from flowrl.runtime.rows import Cursor, fields

Carry = dict[str, Any]
"""The models, by role, and the values of `fl.Carry` arguments, by name."""


@attrs.frozen(eq=False)
class Step:
    """What one step gave.

    Attributes:
        carry: the next carry.
        metrics: the program's metrics, and what was counted: `reward/errors`.
        seconds: by phase: `data`, `generate`, `reward`, `score`, `update`; on Ray with the pool
            before it, as in `train/update`. Pools work at the same time.
        elapsed: seconds that the step took.
    """

    carry: Carry
    metrics: dict[str, float]
    seconds: dict[str, float]
    elapsed: float


class Executor(Protocol):
    """What runs a plan, step by step."""

    def first(self) -> Carry:
        """Return the carry before the first step."""
        ...

    def step(self, carry: Carry, data: Mapping[str, Any], step: int) -> Step:
        """Run step number `step` (from 0) on the rows at the cursors `data`, which move."""
        ...

    def save(self, folder: str) -> dict[str, int]:
        """Write each trained model to `folder/<role>`; return its version, by role."""
        ...

    def save_rows(self, folder: str, carry: Carry) -> list[str]:
        """Write the rows of each carried buffer to `folder/<name>.pt`; return the names."""
        ...

    def versions(self, role: str, carry: Carry) -> tuple[int, int]:
        """Return the version of a role that its generator has, and that of a carry."""
        ...


@attrs.frozen(eq=False)
class LocalExecutor:
    """Runs a lowered graph, step by step.

    Attributes:
        graph: the lowered graph.
        inputs: the program's arguments.
        host: engines, rewards and seeds.
        rows_per_step: rows of the data that each data input gets.
    """

    graph: Graph
    inputs: tuple[Input, ...]
    host: Host
    rows_per_step: int

    def first(self) -> Carry:
        """Return the carry before the first step."""
        carry: Carry = {}
        for spec in self.inputs:
            if spec.kind is Kind.MODEL and spec.name in self.host.models:
                resident = self.host.models[spec.name]
                carry[spec.name] = Handle(resident, resident.version)
            if spec.kind is Kind.CARRY:
                carry[spec.name] = first_value(spec, self.graph, _no_rows)
        return carry

    def step(self, carry: Carry, data: Mapping[str, Cursor], step: int) -> Step:
        """Run step number `step` (from 0).

        Args:
            carry: what the step before returned.
            data: a cursor for each data input, by name; they move.
            step: with the run's seed it sets all randomness.

        Raises:
            FlowrlError: an op failed; it names the op and the line of the program.
        """
        start = time.perf_counter()
        self.host.begin(step, data)
        with self.host.timed("data"):
            batches = {name: cursor.take(self.rows_per_step) for name, cursor in data.items()}
        values: dict[str, Any] = {}
        for spec in self.inputs:
            if spec.kind is not Kind.DATA:
                values |= carried(spec, carry)
            elif spec.name in batches:
                values |= fields(batches[spec.name], spec.name)
            else:
                raise EngineError(f"no data is given for `{spec.name}`")
        known = [values.get(name) for name, _ in self.graph.inputs]
        outputs = Interpreter(self.host).run(self.graph, known)
        named = dict(zip((name for name, _ in self.graph.outputs), outputs, strict=True))
        return Step(
            {
                spec.name: next_carry(spec, carry, named)
                for spec in self.inputs
                if spec.name in carry
            },
            {**metrics_of(named), **self.host.counts},
            dict(self.host.seconds),
            time.perf_counter() - start,
        )

    def save(self, folder: str) -> dict[str, int]:
        """Write each trained model to `folder/<role>`; return its version, by role."""
        trained = {r: m for r, m in self.host.models.items() if hasattr(m.engine, "update")}
        for role, model in trained.items():
            model.engine.save(str(Path(folder) / role))  # type: ignore[attr-defined]
        return {role: model.version for role, model in trained.items()}

    def save_rows(self, folder: str, carry: Carry) -> list[str]:
        """Write the rows of each carried buffer to `folder/<name>.pt`; return the names."""
        buffers = buffers_of(self.inputs, carry)
        for name, rows in buffers.items():
            write_rows(f"{folder}/{name}.pt", list(rows), *rows.values())
        return list(buffers)

    def versions(self, role: str, carry: Carry) -> tuple[int, int]:
        """Return the version of a role that its generator has, and that of a carry."""
        return self.host.loaded[role][1], carry[role].version


def first_value(spec: Input, graph: Graph, no_rows: Callable[[Value], Any]) -> Any:
    """Return a carried value before the first step; of a buffer, its rows by graph input."""
    if not isinstance(spec.initial, Buffer):
        return spec.initial
    return {name: no_rows(value) for name, value in buffer_inputs(graph, spec.name).items()}


def buffers_of(inputs: Sequence[Input], carry: Carry) -> dict[str, dict[str, Any]]:
    """Return the carried buffers, by the name of their argument."""
    return {spec.name: carry[spec.name] for spec in inputs if isinstance(spec.initial, Buffer)}


def _no_rows(value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    return no_rows(value.type.dtype, len(value.axes))


def carried(spec: Input, carry: Carry) -> dict[str, Any]:
    """Return the values of the graph's inputs that a model or carried value makes."""
    if spec.kind is Kind.MODEL:
        return {spec.name: carry.get(spec.name)}
    if isinstance(spec.initial, Buffer):
        return dict(carry[spec.name])
    leaves, names = flatten(carry[spec.name])[0], leaf_names(carry[spec.name], spec.name)
    tensors = [torch.as_tensor(x, dtype=torch.get_default_dtype()) for x in leaves]
    return dict(zip(names, tensors, strict=True))


def next_carry(spec: Input, carry: Carry, named: Mapping[str, Any]) -> Any:
    """Return a model or carried value after a step, of the graph's outputs by name."""
    if spec.kind is Kind.MODEL:
        return named.get(spec.name, carry[spec.name])
    if isinstance(spec.initial, Buffer):
        return {name: named[name] for name in carry[spec.name]}
    unflatten = flatten(carry[spec.name])[1]
    return unflatten([float(named[name]) for name in leaf_names(carry[spec.name], spec.name)])


def metrics_of(named: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics among the graph's outputs by name."""
    prefix = "metrics."
    found = {name: x for name, x in named.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): float(x) for name, x in found.items()}
