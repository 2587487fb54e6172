"""The Ray executor: runs the steps of a plan on pools of workers."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import ray
from ray import cloudpickle

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph, Value
from flowrl.ir.plan import functions_of
from flowrl.ir.program import Kind
from flowrl.ir.types import TensorType, f32
from flowrl.ops.model import Generate
from flowrl.ops.uses import uses_of
from flowrl.runtime.carried import no_rows, write_rows
from flowrl.runtime.channels import Line
from flowrl.runtime.controller import EXAMPLES, IDS, PROMPTS, Controller, Held, Place
from flowrl.runtime.executor import (
    Carry,
    Step,
    buffers_of,
    carried,
    first_value,
    metrics_of,
    next_carry,
)
from flowrl.runtime.job import Job, Loan, Setup
from flowrl.runtime.pools import Pools


class RayExecutor:
    """Runs one plan, step by step; what it returns is what `LocalExecutor` returns.

    Rewards and data are opened before models are loaded: their errors come cheap.

    Args:
        job: what to run.
        pools: the workers; other plans may be on them.
    """

    def __init__(self, job: Job, pools: Pools) -> None:
        self.job, self.pools = job, {p.name: pools[p.name] for p in job.plan.pools}
        self.functions = functions_of(job.source)
        self.graph = job.plan.graph(self.functions)
        _check_homes(job.source)
        data = self._line("data")
        self.controller = Controller(job.name, self.graph, job.source, self.pools, data)
        self.columns: Any = None
        """What rows must have to be scored; where it is, once rewards are open."""
        self.rows_per_step = 0

    def open_rewards(self) -> None:
        """Import the reward functions.

        Raises:
            RewardError: one can't be found or imported.
        """
        self.columns = self.controller.tell(
            self._line("reward"), (), "open_rewards", self.job.rewards
        )

    def open_data(self, columns: Any = None) -> list[tuple[int, str]]:
        """Read the data; return the rows and a sentence of each input.

        Args:
            columns: those of the executor that has opened the rewards, if it is another.

        Raises:
            FlowrlError: a source or a row can't be used.
        """
        line, job, columns = self.controller.data, self.job, columns or self.columns
        return self.controller.ask(line, "open_data", job.name, job.data, columns)  # type: ignore[no-any-return]

    def load(self, rows_per_step: int) -> None:
        """Load the models; each step gets so many rows of each data input.

        Raises:
            EngineError: a model can't be loaded.
        """
        self.rows_per_step, job = rows_per_step, self.job
        plan, functions = job.plan.to_json(), _packed(self.functions)
        given = job.roles, job.tokenizers, job.seed, job.drop_failed, job.threads, job.loan
        for pool, lines in self.pools.items():
            for line in lines:
                setup = Setup(plan, functions, pool, *given)
                self.controller.tell(line, (), "load", job.name, setup, line is lines[0])
        self.controller.instructions.settle()

    def cursors(self) -> dict[str, Place]:
        """Return the start of each data input."""
        return {spec.name: Place() for spec in self.job.inputs if spec.kind is Kind.DATA}

    def first(self) -> Carry:
        """Return the carry before the first step."""
        used = uses_of(self.graph)
        carry: Carry = {}
        for spec in self.job.inputs:
            if spec.kind is Kind.MODEL and spec.name in used:
                carry[spec.name] = self.model(spec.name)
            if spec.kind is Kind.CARRY:
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
        for line in self._lines():
            controller.tell(line, (), "begin", self.job.name, step)
        controller.places = data
        values: dict[str, Any] = {}
        for spec in self.job.inputs:
            if spec.kind is Kind.DATA:
                fields = PROMPTS if spec.data == "Prompts" else EXAMPLES
                values |= controller.rows(spec.name, self.rows_per_step, spec.name, fields)
            else:
                values |= carried(spec, carry)
        known = [values.get(name) for name, _ in self.graph.inputs]
        outputs = controller.run(self.graph, known)
        names = [name for name, _ in self.graph.outputs]
        counted = [controller.tell(x, (), "finish", self.job.name) for x in self._lines()]
        named = self._numbers(dict(zip(names, outputs, strict=True)))
        counts, seconds = self._counted(ray.get(counted))
        return Step(
            {s.name: next_carry(s, carry, named) for s in self.job.inputs if s.name in carry},
            metrics_of(named) | counts,
            seconds,
            time.perf_counter() - start,
        )

    def model(self, role: str) -> Held:
        """Return the model of a role as it is now."""
        loan = self.job.loan
        own = Loan(self.job.name, role, self.graph.input(role).pool, role)
        owner = loan if loan and loan.name == role else own
        line = self.pools[owner.pool][0]
        held = Held(next(IDS), [line])
        self.controller.tell(line, (), "model", owner.plan, owner.role, role, held.id)
        return held

    def save(self, folder: str) -> dict[str, int]:
        """Have each trained model written to `folder/<role>`; return its version, by role.

        The folder must be where the workers are: on several machines, a shared one.
        """
        trained = [role for role, uses in uses_of(self.graph).items() if uses.trains]
        return {
            role: self.controller.ask(
                self._home(role), "save", self.job.name, role, f"{folder}/{role}"
            )
            for role in trained
        }

    def save_rows(self, folder: str, carry: Carry) -> list[str]:
        """Write the rows of each carried buffer to `folder/<name>.pt`; return the names."""
        buffers = buffers_of(self.job.inputs, carry)
        for name, rows in buffers.items():
            path, call = f"{folder}/{name}.pt", self.controller.call
            self.controller.number(int, call(write_rows, path, list(rows), *rows.values()))
        return list(buffers)

    def versions(self, role: str, carry: Carry) -> tuple[int, int]:
        """Return the version of a role that its generator has, and that of a carry."""
        uses = uses_of(self.graph)[role]
        pool = next(node.pool for node in uses.nodes if isinstance(node.op, Generate))
        loaded = self.controller.ask(self.pools[pool][0], "loaded", self.job.name, role)
        return loaded, self.controller.number(attrgetter("version"), carry[role])

    def _numbers(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return outputs with scalars as numbers; models and rows stay where they are."""
        names = [name for name, value in self.graph.outputs if value.type == f32()]
        numbers = self.controller.floats([named[name] for name in names])
        return {**named, **dict(zip(names, numbers, strict=True))}

    def _no_rows(self, value: Value) -> Held:
        assert isinstance(value.type, TensorType)
        kind = value.type.dtype, len(value.axes)
        return self.controller.make(self.pools[value.pool][0], no_rows, *kind)

    def _home(self, role: str) -> Line:
        return self.pools[self.graph.input(role).pool][0]

    def _line(self, claim: str) -> Line:
        plan = self.job.plan
        pool = next((pool for pool in plan.pools if claim in pool.roles), plan.pools[0])
        return self.pools[pool.name][0]

    def _lines(self) -> list[Line]:
        return [line for lines in self.pools.values() for line in lines]

    def _counted(self, replies: Any) -> tuple[dict[str, float], dict[str, float]]:
        """Return the counts of all workers, and the seconds of the slowest of each pool."""
        counts: dict[str, float] = {}
        seconds: dict[str, float] = {}
        for line, (counted, spent) in zip(self._lines(), replies, strict=True):
            for name, count in counted.items():
                counts[name] = counts.get(name, 0.0) + count
            for kind, of in spent.items():
                name = f"{line.pool}/{kind}"
                seconds[name] = max(of, seconds.get(name, 0.0))
        return counts, seconds


def _check_homes(graph: Graph) -> None:
    """Refuse a model that is run forward away from home: only its weights are sent.

    Raises:
        EngineError: naming the op's line and both pools.
    """
    for role, uses in uses_of(graph).items():
        home = graph.input(role).pool
        for node in uses.nodes:
            if getattr(node.op, "use", "") == "score" and node.pool != home:
                raise EngineError(
                    f"{node.op.name}: `{role}` lives in pool `{home}`; in pool `{node.pool}` it "
                    "can only be sampled from",
                    where=node.loc.excerpt(),
                    hint=f"let the pool that claims `{role}.train` claim `{role}.score` too",
                )


def _packed(functions: Sequence[Callable[..., Any]]) -> bytes:
    """Pickle users' functions with what their files define: workers may not have the files."""
    modules = {sys.modules[f.__module__] for f in functions}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(functions))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
