"""What runs a plan step by step, and the executor that does so in this process."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph
from flowrl.ir.program import Input, InputKind
from flowrl.runtime.graph.carry import (
    Carry,
    buffers_of,
    carried,
    first_value,
    next_carry,
    no_rows,
    write_rows,
)
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.graph.reported import reported
from flowrl.runtime.host import Handle, Host
from flowrl.runtime.measures import Measured, Measures
from flowrl.runtime.rows.rows import Cursor, fields


@attrs.frozen(eq=False)
class Step:
    """What one step gave.

    Attributes:
        carry: the next carry.
        metrics: the program's metrics, and what was counted: `reward/errors`.
        seconds: by phase: `data`, `weights` (loading new ones into a generator), `reshard`,
            `generate`, `reward`, `score`, `update`, `compare` (what samples with what trains),
            `residency`; on Ray with the pool before it, as in `train/update`. Pools work at the
            same time.
        elapsed: seconds that the step took.
        ops: what each op took, by its name in the printed graph, in the order of the graph.
    """

    carry: Carry
    metrics: dict[str, float]
    seconds: dict[str, float]
    elapsed: float
    ops: Mapping[str, Measured] = attrs.field(factory=dict)


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
        it: what evaluates the graph.
    """

    graph: Graph
    inputs: tuple[Input, ...]
    host: Host
    rows_per_step: int
    it: Interpreter = attrs.field(init=False)

    @it.default
    def _it(self) -> Interpreter:
        return Interpreter(self.host, Measures(self.graph), reported(self.graph))

    def first(self) -> Carry:
        """Return the carry before the first step."""
        carry: Carry = {}
        for spec in self.inputs:
            if spec.kind is InputKind.MODEL and spec.name in self.host.models:
                resident = self.host.models[spec.name]
                carry[spec.name] = Handle(resident, resident.version)
            if spec.kind is InputKind.CARRY:
                carry[spec.name] = first_value(spec, self.graph, lambda _, *kind: no_rows(*kind))
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
        self.it.measures.clear()
        with self.host.timed("data"):
            batches = {name: cursor.take(self.rows_per_step) for name, cursor in data.items()}
        values: dict[str, Any] = {}
        for spec in self.inputs:
            if spec.kind is not InputKind.DATA:
                values |= carried(spec, carry)
            elif spec.name in batches:
                values |= fields(batches[spec.name], spec.name)
            else:
                raise EngineError(f"no data is given for `{spec.name}`")
        known = [values.get(name) for name, _ in self.graph.inputs]
        outputs = self.it.run(self.graph, known)
        named = dict(zip((name for name, _ in self.graph.outputs), outputs, strict=True))
        return Step(
            {s.name: next_carry(s, carry, named) for s in self.inputs if s.name in carry},
            {**metrics_of(named), **self.host.counts},
            dict(self.host.seconds),
            time.perf_counter() - start,
            self.it.measures.by_name(),
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
        return self.host.loaded[self.host.generators[role]][1], carry[role].version


def metrics_of(named: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics among the graph's outputs by name."""
    prefix = "metrics."
    found = {name: x for name, x in named.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): float(x) for name, x in found.items()}
