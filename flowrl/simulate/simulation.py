"""Steps of a plan on simulated workers, driven by the runtime's own controller."""

from collections.abc import Mapping, Sequence
from math import floor
from random import Random
from typing import Any

import attrs

from flowrl.compiler.planning import Planned
from flowrl.errors import EngineError
from flowrl.ir.program import Input, InputKind
from flowrl.runtime.pools.controller import Controller, Place
from flowrl.runtime.pools.failures import WorkerDied
from flowrl.runtime.pools.pool_executor import PoolExecutor
from flowrl.simulate.work import Work
from flowrl.simulate.worker import SimulatedLine
from flowrl.simulate.world import Flow, Span, World

PLAN = "simulation"
RESTART = 600.0
"""Seconds until a job has its GPUs again, its models are loaded and the step is run once more."""


@attrs.frozen
class Failures:
    """How often GPUs fail, each by itself at an even rate.

    Attributes:
        mean_seconds: between failures of one GPU.
        restart: seconds from a failure until the step is run again.
    """

    mean_seconds: float
    restart: float = RESTART


@attrs.frozen(eq=False)
class Simulation:
    """What happened.

    Attributes:
        steps: seconds of each step, the time that it was run to its end.
        elapsed: seconds of all, with what failures took.
        lost: seconds that failures took: of steps that were not ended, and of restarts.
        busy: of each pool with GPUs, the share of its workers' time that they did something.
        workers: of each pool.
        spans: what was done when.
        flows: what was sent when.
        deaths: when a worker died, and which.
    """

    steps: Sequence[float]
    elapsed: float
    lost: float
    busy: Mapping[str, float]
    workers: Mapping[str, int]
    spans: Sequence[Span]
    flows: Sequence[Flow]
    deaths: Sequence[tuple[float, tuple[str, int]]]


def simulate(
    planned: Planned,
    inputs: tuple[Input, ...],
    steps: int,
    seed: int = 0,
    failures: Failures | None = None,
) -> Simulation:
    """Run steps of a plan on simulated workers.

    Args:
        planned: the program, placed.
        inputs: the program's arguments.
        steps: how many.
        seed: of lengths, rounds, branches and failures; the same seed gives the same run.
        failures: of GPUs; none by default.
    """
    return _Run(planned, inputs, Random(seed), failures).all(steps)


class _Run:
    def __init__(
        self,
        planned: Planned,
        inputs: tuple[Input, ...],
        rng: Random,
        failures: Failures | None,
    ) -> None:
        self.planned, self.inputs, self.failures = planned, inputs, failures
        self.work = Work.of(planned)
        target = planned.target
        call = target.profile.of(target.machines.gpu(0).name, "controller").start
        self.world = World(rng, call)
        self.deaths: list[tuple[float, tuple[str, int]]] = []
        self.lost = 0.0

    def all(self, steps: int) -> Simulation:
        """Run so many steps."""
        self._draw_death()
        executor, carry, done = self._start()
        took: list[float] = []
        while len(took) < steps:
            world = self.world
            world.step, world.rounds, start = len(took), self._rounds(), world.now
            try:
                carry = executor.step(carry, done, world.step).carry
                took.append(world.now - start)
            except EngineError as error:
                if not isinstance(error.__cause__, WorkerDied):
                    raise
                self._restart(start)
                executor, carry, done = self._start()
        workers = {name: len(lines) for name, lines in executor.pools.items()}
        return Simulation(
            took,
            self.world.now,
            self.lost,
            _busy(self.world.spans, workers, self.world.now),
            workers,
            self.world.spans,
            self.world.flows,
            self.deaths,
        )

    def _start(self) -> tuple[PoolExecutor, dict[str, Any], dict[str, Place]]:
        """Return an executor on fresh workers, its carry, and places in the data."""
        planned, pools = self.planned, self.planned.cluster.pools
        crew: dict[str, list[SimulatedLine]] = {}
        for pool in pools:
            crew[pool.name] = [
                SimulatedLine(
                    pool.name, i, work=self.work, world=self.world, crew=crew, free=self.world.now
                )
                for i in range(self.work.workers(pool))
            ]
        data = crew[planned.cluster.pool_of("data")][0]
        controller = Controller(PLAN, planned.graph, planned.graph, crew, data, self.world)
        rows = round(planned.target.workload.prompts)
        executor = PoolExecutor(controller, planned.graph, self.inputs, rows)
        places = {spec.name: Place() for spec in self.inputs if spec.kind is InputKind.DATA}
        return executor, executor.first(), places

    def _restart(self, start: float) -> None:
        """Let the time of a lost step and of its restart go by."""
        assert self.failures is not None
        assert self.world.death is not None
        self.deaths.append(self.world.death)
        self.world.cut()
        self.world.now += self.failures.restart
        self.lost += self.world.now - start
        self._draw_death()

    def _draw_death(self) -> None:
        """Draw when the next worker dies, and which: GPUs fail independently, at one rate."""
        if self.failures is None:
            return
        pools = self.planned.cluster.pools
        workers = [(pool, i) for pool in pools for i in range(self.work.workers(pool))]
        gpus = [pool.gpus / self.work.workers(pool) for pool, _ in workers]
        at = self.world.now + self.world.rng.expovariate(sum(gpus) / self.failures.mean_seconds)
        pool, index = self.world.rng.choices(workers, gpus)[0]
        self.world.death = at, (pool.name, index)

    def _rounds(self) -> int:
        """Draw the rounds of a step's `sample_until`, whose mean is the workload's."""
        rounds = self.planned.target.workload.rounds
        return max(1, floor(rounds) + (self.world.rng.random() < rounds % 1))


def _busy(spans: Sequence[Span], workers: Mapping[str, int], elapsed: float) -> dict[str, float]:
    """Return the share of the time that the workers of each pool did something."""
    spent = dict.fromkeys(workers, 0.0)
    for span in spans:
        for pool, _ in span.workers:
            spent[pool] += span.end - span.start
    return {name: spent[name] / (workers[name] * elapsed) for name in workers if elapsed}
