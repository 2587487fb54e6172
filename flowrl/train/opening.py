"""What opens the rewards and the data of a run, in whichever process they are needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.checks.batches import rows_drawn
from flowrl.config.checks.program import check_inputs
from flowrl.config.checks.sampling import Room, held_out_room, room_of
from flowrl.config.run_file import RunFile
from flowrl.data.dataset import Dataset
from flowrl.data.opening import open_data
from flowrl.data.spec import DataSpec, RowKind
from flowrl.errors import DataError, RewardError
from flowrl.ir.program import InputKind
from flowrl.ops.model import Score
from flowrl.ops.uses import tokenizing_role
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.routes import Routes
from flowrl.rewards.scores import Policy
from flowrl.rewards.scoring import score_function
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.host import ScoreFunction
from flowrl.stages import Lowered
from flowrl.train.loggers import SampleLog

KINDS: dict[str, RowKind] = {"Prompts": "prompts", "Examples": "examples", "Pairs": "pairs"}

TRAINING, EVALUATION = "training", "evaluation"
"""What the two plans of a run are called where they run."""


@attrs.frozen(eq=False)
class OpenRewards:
    """Rewards that can be called.

    Attributes:
        pool: calls them.
        scores: by the name of the plan that is scored.
    """

    pool: RewardPool
    scores: Mapping[str, ScoreFunction]

    @property
    def columns(self) -> Routes:
        """What rows must have."""
        return self.pool.routes

    def score(self, plan: str) -> ScoreFunction:
        """Return what scores for a plan."""
        return self.scores[plan]

    def close(self) -> None:
        """End the processes that call them."""
        self.pool.close()


@attrs.frozen
class RewardOpening:
    """Opens the rewards of a run.

    Attributes:
        specs: by name.
        workers: processes that call them.
        folder: where the relative paths of the functions start.
        policy: what follows if one fails.
        samples: how many completions of a training step to write out, and where.
        lines: of the run file that name each reward.
    """

    specs: Mapping[str, RewardSpec | ServerSpec]
    workers: int
    folder: Path
    policy: Policy
    samples: tuple[int, Path]
    lines: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFile) -> "RewardOpening":
        """Return what a run file says of rewards."""
        table = run.reward
        called = [name for name in table.functions if name not in table.models]
        specs: dict[str, RewardSpec | ServerSpec] = {
            name: run.structure(ServerSpec, f"reward.{name}")
            if name in table.servers
            else run.structure(RewardSpec, f"reward.{name}")
            for name in called
        }
        samples = (run.log.samples, run.folder / "samples.jsonl")
        lines = {name: run.where(f"reward.{name}") for name in called}
        return cls(specs, table.workers, run.resolve("."), table.on_reward_error, samples, lines)

    def __call__(self) -> OpenRewards:
        """Start the processes that call the functions; see that the servers are there.

        Raises:
            RewardError: a function can't be found or imported, or a server not be reached.
        """
        try:
            pool = RewardPool(self.specs, workers=self.workers, folder=self.folder)
        except RewardError as error:
            lines = [self.lines[error.reward]] if error.reward else self.lines.values()
            raise error.told(where=error.where, made=lines) from error
        plain = score_function(pool, self.policy)
        count, file = self.samples
        training = SampleLog(file, count, plain) if count else plain
        return OpenRewards(pool, {TRAINING: training, EVALUATION: plain})


@attrs.frozen
class DataOpening:
    """Opens the data of a program.

    Attributes:
        specs: where the rows of each data input are, and what they are made into, by its name.
        tokenizer: of the model that reads them.
        seed: of the run.
        folder: where relative paths start.
        lines: of the run file that say where the rows of each data input are.
        scored: whether rewards are called on the rows.
        in_order: draw them in the order of the source, for ever.
        drawn: steps of the run, and rows that each draws; None if that is not known before.
        room: what the engine that samples has for a prompt; None if that is not known before.
    """

    specs: Mapping[str, tuple[DataSpec, RowKind]]
    tokenizer: Any
    seed: int
    folder: Path
    lines: Mapping[str, str]
    scored: bool = True
    in_order: bool = False
    drawn: tuple[int, int] | None = None
    room: Room | None = None

    @classmethod
    def of(cls, run: RunFile, lowered: Lowered, tokenizers: Mapping[str, Any]) -> "DataOpening":
        """Return what a run file says of each data input of a program.

        Raises:
            RunFileError: it describes other inputs.
        """
        inputs = {s.name: s.data for s in lowered.traced.inputs if s.kind is InputKind.DATA}
        keys = check_inputs(run, lowered.traced.inputs)
        specs = {n: (run.structure(DataSpec, key), KINDS[inputs[n]]) for n, key in keys.items()}
        ops = [node.op for node in lowered.graph.walk()]
        scored = any(isinstance(op, Score) for op in ops)
        return cls(
            specs,
            tokenizers[tokenizing_role(lowered.graph)],
            run.train.seed,
            run.resolve("."),
            {name: run.where(key) for name, key in keys.items()},
            scored,
            drawn=rows_drawn(run, lowered.graph),
            room=room_of(run, lowered.graph),
        )

    @classmethod
    def held_out(cls, run: RunFile, tokenizer: Any, role: str) -> "DataOpening":
        """Return what a run file says of held-out prompts, from which a role samples."""
        specs: dict[str, tuple[DataSpec, RowKind]] = {
            "prompts": (run.structure(DataSpec, "eval.data"), "prompts")
        }
        return cls(
            specs,
            tokenizer,
            run.train.seed,
            run.resolve("."),
            {"prompts": run.where("eval.data")},
            in_order=True,
            room=held_out_room(run, role),
        )

    def __call__(self, columns: Routes) -> dict[str, Dataset]:
        """Read the rows, which must have the columns that rewards need.

        Raises:
            DataError: a source or a row can't be used.
            RewardError: a row lacks what a reward needs.
        """
        opened = {}
        for name, of in self.specs.items():
            try:
                opened[name] = self._open(*of, columns)
            except (DataError, RewardError) as error:
                raise error.told(where=error.where, made=[self.lines[name]]) from error
        return opened

    def _open(self, spec: DataSpec, kind: RowKind, columns: Routes) -> Dataset:
        data = open_data(
            spec,
            kind,
            self.tokenizer,
            seed=self.seed,
            folder=self.folder,
            needs=columns.needs if self.scored else {},
        )
        if self.scored:
            columns.check(entry.row for entry in data.entries)
        if self.drawn is not None:
            spec.check_lasts(*self.drawn, data.rows)
        if self.room is not None:
            data.check_prompts(self.room.prompt, str(self.room))
        if not self.in_order:
            return data
        return attrs.evolve(data, shuffle=False, sampler=None, epochs=None)
