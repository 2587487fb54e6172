"""Runs the steps of a plan on pools of workers, whoever they are."""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from flowrl.ir.graph import Graph
from flowrl.ir.program import Input, InputKind
from flowrl.ir.types import DType, f32
from flowrl.ops.uses import uses_of
from flowrl.runtime.executor import Step, metrics_of
from flowrl.runtime.graph.carry import (
    Carry,
    buffers_of,
    carried,
    first_value,
    next_carry,
    no_rows,
    write_rows,
)
from flowrl.runtime.measures import Measured, by_name
from flowrl.runtime.pools.controller import EXAMPLES, PROMPTS, Controller, Place
from flowrl.runtime.pools.held import Held
from flowrl.runtime.pools.job import Loan
from flowrl.runtime.pools.lines import Line

MOST_MEASURED = 100
"""Nodes a message: of each at most 30 bytes."""


class PoolExecutor:
    """Runs a lowered graph, step by step; what it returns is what `LocalExecutor` returns.

    Args:
        controller: walks the graph.
        graph: the lowered graph.
        inputs: the program's arguments.
        rows_per_step: rows of the data that each data input gets.
        loan: the model of another plan that this one is run on.
    """

    def __init__(
        self,
        controller: Controller,
        graph: Graph,
        inputs: tuple[Input, ...],
        rows_per_step: int = 0,
        loan: Loan | None = None,
    ) -> None:
        self.controller, self.graph, self.inputs = controller, graph, inputs
        self.rows_per_step, self.loan = rows_per_step, loan
        self.name, self.pools = controller.plan, controller.pools

    def cursors(self) -> dict[str, Place]:
        """Return the start of each data input."""
        return {spec.name: Place() for spec in self.inputs if spec.kind is InputKind.DATA}

    def first(self) -> Carry:
        """Return the carry before the first step."""
        used = uses_of(self.graph)
        carry: Carry = {}
        for spec in self.inputs:
            if spec.kind is InputKind.MODEL and spec.name in used:
                carry[spec.name] = self.model(spec.name)
            if spec.kind is InputKind.CARRY:
                carry[spec.name] = first_value(spec, self.graph, self._no_rows)
        return carry

    def step(self, carry: Carry, data: Mapping[str, Place], step: int) -> Step:
        """Run step number `step` (from 0).

        Args:
            carry: what the step before returned.
            data: a place in each data input, by name; they move.
            step: with the run's seed it sets all randomness.

        Raises:
            FlowrlError: an op failed or a worker died; it names the op, the worker and the line.
        """
        start, controller = time.perf_counter(), self.controller
        controller.begin(step, data)
        values: dict[str, Any] = {}
        for spec in self.inputs:
            if spec.kind is InputKind.DATA:
                fields = PROMPTS if spec.data == "Prompts" else EXAMPLES
                values |= controller.rows(spec.name, self.rows_per_step, spec.name, fields)
            else:
                values |= carried(spec, carry)
        known = [values.get(name) for name, _ in self.graph.inputs]
        outputs = controller.run(self.graph, known)
        names = [name for name, _ in self.graph.outputs]
        counted = controller.tell_all(self._lines(), "finish", self.name)
        measured = self._tell_to_measure()
        named = self._numbers(dict(zip(names, outputs, strict=True)))
        counts, seconds = self._counted(controller.replies.get(counted))
        return Step(
            {s.name: next_carry(s, carry, named) for s in self.inputs if s.name in carry},
            metrics_of(named) | counts,
            seconds,
            time.perf_counter() - start,
            self._measured(measured),
        )

    def model(self, role: str) -> Held:
        """Return the model of a role as it is now."""
        loan = self.loan
        own = Loan(self.name, role, self.graph.input(role).pool, role)
        owner = loan if loan and loan.name == role else own
        lines = self.controller.holders[owner.pool]
        held = Held(lines)
        self.controller.tell_all(lines, "model", owner.plan, owner.role, role, held.id)
        return held

    def save(self, folder: str) -> dict[str, int]:
        """Have each trained model written to `folder/<role>`; return its version, by role.

        The folder must be where the workers are: on several machines, a shared one.
        """
        trained = [role for role, uses in uses_of(self.graph).items() if uses.trains]
        ask, home = self.controller.ask_all, {r: self.graph.input(r).pool for r in trained}
        return {r: ask(home[r], "save", self.name, r, f"{folder}/{r}") for r in trained}

    def save_rows(self, folder: str, carry: Carry) -> list[str]:
        """Write the rows of each carried buffer to `folder/<name>.pt`; return the names."""
        buffers = buffers_of(self.inputs, carry)
        for name, rows in buffers.items():
            path, once = f"{folder}/{name}.pt", self.controller.once
            self.controller.number(int, once(write_rows, path, list(rows), *rows.values()))
        return list(buffers)

    def versions(self, role: str, carry: Carry) -> tuple[int, int]:
        """Return the version of a role that its generator has, and that of a carry."""
        pool = uses_of(self.graph)[role].sampling[0].pool
        loaded = self.controller.ask(self.pools[pool][0], "loaded", self.name, role)
        return loaded, self.controller.number(attrgetter("version"), carry[role])

    def _numbers(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return outputs with scalars as numbers; models and rows stay where they are."""
        names = [name for name, value in self.graph.outputs if value.type == f32()]
        numbers = self.controller.floats([named[name] for name in names])
        return {**named, **dict(zip(names, numbers, strict=True))}

    def _tell_to_measure(self) -> list[tuple[Line, Any]]:
        """Have workers say what nodes took, some at a time: messages stay small."""
        count = len(self.controller.names)
        parts = [(n, n + MOST_MEASURED) for n in range(0, count, MOST_MEASURED)]
        tell, name = self.controller.tell, self.name
        return [
            (line, tell(line, (), "measured", name, *part))
            for line in self._lines()
            for part in parts
        ]

    def _measured(self, asked: Sequence[tuple[Line, Any]]) -> dict[str, Measured]:
        rows = self.controller.replies.get([reply for _, reply in asked])
        found = [
            (line.pool, {number: Measured(*its) for number, *its in of})
            for (line, _), of in zip(asked, rows, strict=True)
        ]
        return by_name(self.controller.names, found)

    def _no_rows(self, pool: str, dtype: DType, depth: int) -> Held:
        return self.controller.make(pool, no_rows, dtype, depth)

    def _lines(self) -> list[Line]:
        return [line for lines in self.pools.values() for line in lines]

    def _counted(self, replies: Any) -> tuple[dict[str, float], dict[str, float]]:
        """Return the counts of all pools, and the seconds of the slowest worker of each.

        What a pool's workers count they do alike: its first one's are taken.
        """
        counts: dict[str, float] = {}
        seconds: dict[str, float] = {}
        first = [lines[0] for lines in self.pools.values()]
        for line, (counted, spent) in zip(self._lines(), replies, strict=True):
            for name, count in counted.items() if line in first else ():
                counts[name] = counts.get(name, 0.0) + count
            for kind, of in spent.items():
                name = f"{line.pool}/{kind}"
                seconds[name] = max(of, seconds.get(name, 0.0))
        return counts, seconds
