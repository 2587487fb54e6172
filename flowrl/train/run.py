"""The loop: step, log, save, evaluate."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from flowrl.compiler.findings import findings
from flowrl.config.check import batches
from flowrl.config.run_file import load_run_file
from flowrl.errors import EngineError, FlowrlError
from flowrl.ir.program import Kind
from flowrl.rewards.scoring import score_function
from flowrl.runtime.executor import Carry, Step
from flowrl.runtime.host import ScoreFunction
from flowrl.runtime.rows import Cursor
from flowrl.stages import Compiled
from flowrl.train.checkpoint import save_checkpoint
from flowrl.train.evaluate import Evaluation, open_evaluation
from flowrl.train.folder import open_folder
from flowrl.train.loggers import MetricLog, SampleLog
from flowrl.train.prepare import Prepared, lower, prepare, reader
from flowrl.train.progress import Progress, progress


def run_file(path: str, sets: tuple[str, ...] = ()) -> Path:
    """Run what a run file describes; return the last checkpoint's folder.

    Args:
        path: the run file.
        sets: `a.b=value` texts over it.

    Raises:
        FlowrlError: something in the run file, the program, the data, a reward or a model is
            wrong, or the run's folder has results already; all that can be known before models
            load is found before.
    """
    run = load_run_file(path, sets)
    with progress(run.train.steps, run.log.console) as show:
        lowered = lower(run)
        show.note(batches(run, lowered.graph))
        traced = lowered.traced
        for finding in findings(traced.program, traced.hyperparameters, traced.sampling):
            show.note(finding)
        with prepare(run, lowered) as ready:
            for data in ready.data.values():
                show.note(data.sentence())
            open_folder(run.folder)
            try:
                return Loop.of(ready, show).run()
            except KeyboardInterrupt:
                show.note(f"interrupted; what was written is in {run.folder}")
                raise


@attrs.frozen(eq=False)
class Loop:
    """One run, with its models loaded.

    Attributes:
        ready: the run file, the data and the reward workers.
        compiled: the program.
        evaluated: the role that is evaluated.
        evaluation: that of `[eval]`.
        show: is told of each step.
        cursors: the place in the data of each input.
    """

    ready: Prepared
    compiled: Compiled
    evaluated: str
    evaluation: Evaluation | None
    show: Progress
    cursors: Mapping[str, Cursor]

    @classmethod
    def of(cls, ready: Prepared, show: Progress) -> "Loop":
        """Load the models of a prepared run, once its held-out data are read."""
        run, role = ready.run, reader(ready.lowered)
        setup, tokenizer = ready.lowered.models[role], ready.tokenizers[role]
        evaluation = open_evaluation(run, setup, tokenizer, ready.pool)
        if evaluation is not None:
            show.note(f"held out: {evaluation.data.sentence()}")
        compiled = ready.lowered.compile(
            rows_per_step=run.train.prompts_per_step,
            tokenizers=ready.tokenizers,
            score=_score(ready),
            drop_failed=run.reward.on_reward_error == "drop_group",
            seed=run.train.seed,
            threads=run.engines.threads,
        )
        if evaluation is not None:
            evaluation.sample_with(compiled.executor.host.generators.get(role))
        cursors = {name: data.cursor() for name, data in ready.data.items()}
        return cls(ready, compiled, role, evaluation, show, cursors)

    def run(self) -> Path:
        """Run all steps; return the last checkpoint's folder."""
        run, carry = self.ready.run, self.compiled.first()
        with MetricLog(run.folder, run.log) as log:
            self._evaluate(0, log)
            self.show.begin()
            for number in range(1, run.train.steps + 1):
                done = self.compiled.executor.step(carry, self.cursors, number - 1)
                self._record(number, done, log)
                self._check_gap(number, carry, done.metrics)
                carry = done.carry
                self._save(number, carry)
                self._evaluate(number, log)
        return run.folder / "checkpoint"

    def _record(self, number: int, done: Step, log: MetricLog) -> None:
        self.show.step(number, done)
        if number % self.ready.run.log.every_steps == 0 or self._last(number):
            phases = {f"seconds/{name}": spent for name, spent in done.seconds.items()}
            log.write(number, {**done.metrics, **phases, "seconds": done.elapsed})

    def _save(self, number: int, carry: Carry) -> None:
        run, executor = self.ready.run, self.compiled.executor
        every = run.train.checkpoint_every
        if not self._last(number) and (not every or number % every):
            return
        folder = run.folder / ("checkpoint" if self._last(number) else f"checkpoint-{number}")
        carried = {s.name: carry[s.name] for s in executor.inputs if s.kind is Kind.CARRY}
        save_checkpoint(folder, number, executor.host, self.ready.tokenizers, carried, self.cursors)
        self.show.note(f"checkpoint: {folder}")

    def _evaluate(self, number: int, log: MetricLog) -> None:
        if self.evaluation is None or not self._evaluation_is_due(number):
            return
        try:
            metrics = self.evaluation.run(self.compiled.executor.host.models[self.evaluated])
        except FlowrlError:
            self.show.note(f"the evaluation after step {number} failed")
            raise
        log.write(number, metrics)
        shown = {n: x for n, x in metrics.items() if x or not n.startswith("eval/reward/")}
        self.show.note(f"step {number}: {', '.join(f'{n} {x:.3f}' for n, x in shown.items())}")

    def _evaluation_is_due(self, number: int) -> bool:
        table = self.ready.run.eval
        if table is None or number == 0:
            return table is not None and table.at_start
        return self._last(number) or bool(table.every_steps and number % table.every_steps == 0)

    def _check_gap(self, number: int, before: Carry, metrics: Mapping[str, float]) -> None:
        """Stop the run if engine and trainer disagree on what was sampled."""
        limit = self.ready.run.train.max_logprob_mismatch
        for role in before:
            name = f"{role}/logprob_gap_max"
            if limit is None or (value := metrics.get(name, 0.0)) <= limit:
                continue
            loaded, trained = self.compiled.executor.host.loaded[role][1], before[role].version
            raise EngineError(
                f"{name} is {value:.4g} at step {number}; at most {limit:g} is allowed: the engine "
                f"(weights of version {loaded}) and the trainer (version {trained}) give other "
                "log-probabilities to the same tokens",
                where=self.ready.run.where("train.max_logprob_mismatch"),
                hint="look for stale weights or caches in the engine, another temperature, or "
                "lower precision (bfloat16 alone gives up to 0.3)",
            )

    def _last(self, number: int) -> bool:
        return number == self.ready.run.train.steps


def _score(ready: Prepared) -> ScoreFunction:
    run = ready.run
    score = score_function(ready.pool, run.reward.on_reward_error)
    if not run.log.samples:
        return score
    return SampleLog(run.folder / "samples.jsonl", run.log.samples, score)
