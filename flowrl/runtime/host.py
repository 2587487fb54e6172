"""What the interpreter asks of the world: models, rewards, data, seeds."""

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import attrs

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node
from flowrl.ops.model import Generate
from flowrl.runtime.engine import Generator, Sampling, Scorer, Sequences
from flowrl.runtime.model.comparison import Comparison
from flowrl.runtime.residency import Room
from flowrl.runtime.rows.rows import Cursor, Row, row_keys

Path = tuple[int, ...]
"""The turns and rounds of the loops around a node; part of a seed."""


class Detokenizer(Protocol):
    """The part of a tokenizer that turns tokens into text."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of tokens."""
        ...


@attrs.define(eq=False)
class Resident:
    """A model that lives in an engine, and how many updates it has had.

    Attributes:
        role: the role of the program.
        engine: what runs it forward, and trains it if it can.
        version: the number of updates so far, over the whole run.
        home: of a snapshot, or the base of an adapter: the model that it is of. It is run while
            that one is on the device.
    """

    role: str
    engine: Scorer
    version: int = 0
    home: "Resident | None" = None


@attrs.frozen(eq=False)
class Handle:
    """One version of a resident model: what a model value is when the graph runs."""

    resident: Resident
    version: int

    @property
    def engine(self) -> Scorer:
        """The engine, if it still holds this version.

        Raises:
            EngineError: the model was updated since.
        """
        if self.version != self.resident.version:
            raise EngineError(
                f"`{self.resident.role}` is at version {self.resident.version}; "
                f"version {self.version} was asked for, which is gone",
                hint="an update changes the weights in place: keep `ops.snapshot(model)` before it",
            )
        return self.resident.engine

    def next(self) -> "Handle":
        """Return the handle of the version after an update."""
        self.resident.version += 1
        return Handle(self.resident, self.resident.version)


@attrs.frozen(eq=False)
class Scores:
    """Rewards of completions by function, None where it failed, and what is counted."""

    values: list[list[float | None]]
    counts: Mapping[str, float]


class ScoreFunction(Protocol):
    """Scores completions by several rewards."""

    def __call__(
        self,
        functions: Sequence[str],
        rows: Sequence[Row],
        completions: Sequence[str],
        samples: Sequence[int],
        step: int,
        given: Mapping[str, list[float]],
        /,
    ) -> Scores:
        """Return the rewards of each name.

        Args:
            functions: the names of the rewards.
            rows: the row of each completion.
            completions: texts.
            samples: the number of each completion among those of its prompt.
            step: of the run, from 0.
            given: rewards by name that are there already: a model gave them.

        Raises:
            RewardError: one failed, and the policy for failures is to stop.
        """
        ...


class Reader(Protocol):
    """How a model reads what another tokenizer wrote."""

    def __call__(self, rows: Sequence[Row], tokens: Ragged) -> Sequences:
        """Return prompts and completions, i64[prompt, sample, token], as the model's own tokens."""
        ...


@attrs.define(eq=False)
class Host:
    """The world of one run in one process.

    Attributes:
        models: the resident model of each role.
        generators: what samples from each role.
        sampling: how to sample from each role, where the program is silent.
        detokenizers: the tokenizer of each role.
        readers: how each role reads completions whose tokenizer is not its own.
        score: calls reward functions.
        drop_failed: drop the group of a failed reward; else it scores 0.
        sequences_per_block: for each role, how many sequences a generator computes together; all of
            a worker's if None, or not given.
        seed: of the run.
        step: the number of this step.
        cursors: the place in the data of each input.
        counts: what was counted in this step, such as `reward/errors`.
        seconds: time spent in this step by kind of op.
        loaded: for each generator, the model and version that it has.
        shared: for each generator that computes with a trainer's own weights, that trainer.
        room: who of them has the device.
        comparison: of what samples with what trains.
    """

    models: dict[str, Resident] = attrs.field(factory=dict)
    generators: Mapping[str, Generator] = attrs.field(factory=dict)
    sampling: Mapping[str, Sampling] = attrs.field(factory=dict)
    detokenizers: Mapping[str, Detokenizer] = attrs.field(factory=dict)
    readers: dict[str, Reader] = attrs.field(factory=dict)
    score: ScoreFunction | None = None
    drop_failed: bool = False
    sequences_per_block: dict[str, int | None] = attrs.field(factory=dict)
    seed: int = 0
    step: int = 0
    cursors: Mapping[str, Cursor] = attrs.field(factory=dict)
    counts: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    seconds: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    loaded: dict[Generator, tuple[Any, int]] = attrs.field(factory=dict)
    shared: dict[Generator, Scorer] = attrs.field(factory=dict)
    room: Room = attrs.field(factory=Room)
    comparison: Comparison = attrs.field(factory=Comparison)

    def begin(self, step: int, cursors: Mapping[str, Cursor]) -> None:
        """Start a step: its number sets the seeds, its cursors where to draw rows."""
        self.step, self.cursors = step, cursors
        self.counts.clear()
        self.seconds.clear()
        self.room.begin()

    def seed_of(self, *parts: int) -> int:
        """Return a seed below 2**62 that depends on the run, the step and `parts` only."""
        text = ",".join(map(str, (self.seed, self.step, *parts)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 2

    def row_seeds(self, rows: Sequence[Row], *parts: int) -> list[int]:
        """Return a seed for each row; a row that comes twice has two."""
        return [self.seed_of(*parts, *key) for key in row_keys(rows)]

    def generator(self, handle: Handle) -> Generator:
        """Return the generator of a role, holding the weights of `handle`.

        Raises:
            EngineError: the role has no generator.
        """
        role = handle.resident.role
        if role not in self.generators:
            raise EngineError(
                f"no engine generates for `{role}`; there are engines for: "
                f"{', '.join(self.generators) or 'none'}",
                hint=f"name one in the run file: `[engines.{role}.generate]`",
            )
        generator, engine = self.generators[role], handle.engine
        if self.loaded.get(generator) != (handle.resident, handle.version):
            with self.timed("weights"):
                self._renew(generator, engine, handle)
            self.loaded[generator] = (handle.resident, handle.version)
            self.room.brought(generator)
        return generator

    def _renew(self, generator: Generator, engine: Scorer, handle: Handle) -> None:
        """Let a generator have the weights of an engine; those that they share are there."""
        if self.shared.get(generator) is engine:
            generator.renewed(handle.version)
        elif generator in self.shared:
            role = handle.resident.role
            raise EngineError(
                f"the generator of `{role}` shares the trainer's weights; loading others would "
                "overwrite them",
                hint=f'set `residencies = {{ "{role}.generate" = "resident" }}` of its pool',
            )
        else:
            generator.load(engine.weights(), handle.version)

    def compare(self, handle: Handle) -> None:
        """Compare what a model was sampled with to its weights, if that is due.

        Raises:
            EngineError: they are not the same.
        """
        model = handle.resident
        generator: Any = self.generators[model.role]
        if self.comparison.due(generator, (model, handle.version)):
            with self.timed("compare"):
                shared = self.shared.get(generator) is handle.engine
                self.counts |= self.comparison.figures(
                    model.role, generator, handle.engine, shared=shared
                )

    def take(self, node: Node, handle: Handle) -> None:
        """Let the model of an op have the device; the one that worked before it makes room."""
        model = handle.resident
        if isinstance(node.op, Generate):
            self.give(self.generators.get(model.role))
        else:
            self.give((model.home or model).engine)

    def give(self, engine: Any) -> None:
        """Let an engine have the device."""
        if self.room.turns(engine):
            with self.timed("residency"):
                self.loaded.pop(self.room.take(engine), None)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Add the time spent inside to `seconds`."""
        start = time.perf_counter()
        yield
        self.seconds[kind] += time.perf_counter() - start
