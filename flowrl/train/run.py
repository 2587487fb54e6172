"""The loop: step, log, evaluate, save."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flowrl.compiler.findings import findings
from flowrl.config.check import batches
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.errors import EngineError
from flowrl.rewards.scoring import score_function
from flowrl.runtime.executor import Step
from flowrl.stages import Compiled
from flowrl.train.checkpoint import save_checkpoint
from flowrl.train.evaluate import Evaluation, open_evaluation
from flowrl.train.loggers import MetricLog
from flowrl.train.prepare import Prepared, lower, prepare, reader
from flowrl.train.progress import Progress, progress


def run_file(path: str, sets: tuple[str, ...] = ()) -> Path:
    """Run what a run file describes; return the last checkpoint's folder.

    Args:
        path: the run file.
        sets: `a.b=value` texts over it.

    Raises:
        FlowrlError: something in the run file, the program, the data, a reward or a model is
            wrong; all that can be known before models load is found before.
    """
    run = load_run_file(path, sets)
    with progress(run.train.steps, run.log.console) as show:
        lowered = lower(run)
        show.note(batches(run, lowered.graph))
        for finding in findings(lowered.traced.program, lowered.traced.hyperparameters):
            show.note(finding)
        with prepare(run, lowered) as ready:
            for data in ready.data.values():
                show.note(data.sentence())
            return Loop.of(ready, show).run()


@attrs.frozen(eq=False)
class Loop:
    """One run, with its models loaded."""

    ready: Prepared
    compiled: Compiled
    evaluation: Evaluation | None
    show: Progress

    @classmethod
    def of(cls, ready: Prepared, show: Progress) -> "Loop":
        """Load the models of a prepared run."""
        run, policy = ready.run, ready.run.reward.on_reward_error
        compiled = ready.lowered.compile(
            rows_per_step=run.train.prompts_per_step,
            tokenizers=ready.tokenizers,
            score=score_function(ready.pool, policy),
            drop_failed=policy == "drop_group",
            seed=run.train.seed,
            threads=run.engines.threads,
        )
        evaluation = None
        if run.eval is not None:
            role = reader(ready.lowered)
            host, tokenizer = compiled.executor.host, ready.tokenizers[role]
            evaluation = open_evaluation(run, run.eval, role, tokenizer, ready.pool, host)
            show.note(f"held out: {evaluation.data.sentence()}")
        return cls(ready, compiled, evaluation, show)

    def run(self) -> Path:
        """Run all steps; return the last checkpoint's folder."""
        run = self.ready.run
        carry = self.compiled.first()
        cursors = {name: data.cursor() for name, data in self.ready.data.items()}
        with MetricLog(run.folder, run.log) as log:
            self._evaluate(0, log)
            for number in range(1, run.train.steps + 1):
                done = self.compiled.executor.step(carry, cursors, number - 1)
                carry = done.carry
                _check_gap(run, done.metrics, number)
                self._record(number, done, log)
                self._evaluate(number, log)
                last = number == run.train.steps
                every = run.train.checkpoint_every
                if not last and every and number % every == 0:
                    self._save(run.folder / f"checkpoint-{number}", number, carry, cursors)
            return self._save(run.folder / "checkpoint", run.train.steps, carry, cursors)

    def _record(self, number: int, done: Step, log: MetricLog) -> None:
        self.show.step(number, done)
        if number % self.ready.run.log.every_steps == 0 or number == self.ready.run.train.steps:
            phases = {f"seconds/{name}": spent for name, spent in done.seconds.items()}
            log.write(number, {**done.metrics, **phases, "seconds": sum(done.seconds.values())})

    def _evaluate(self, number: int, log: MetricLog) -> None:
        table = self.ready.run.eval
        if self.evaluation is None or table is None:
            return
        last = number == self.ready.run.train.steps
        due = last or (table.every_steps and number % table.every_steps == 0)
        if due if number else table.at_start:
            metrics = self.evaluation.run()
            log.write(number, metrics)
            shown = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
            self.show.note(f"step {number}: {shown}")

    def _save(
        self, folder: Path, step: int, carry: Mapping[str, Any], cursors: Mapping[str, Any]
    ) -> Path:
        positions = {name: cursor.position for name, cursor in cursors.items()}
        inputs, host = self.compiled.executor.inputs, self.compiled.executor.host
        save_checkpoint(folder, step, host, self.ready.tokenizers, inputs, carry, positions)
        self.show.note(f"checkpoint: {folder}")
        return folder


def _check_gap(run: RunFile, metrics: Mapping[str, float], step: int) -> None:
    """Stop the run if engine and trainer disagree on what was sampled."""
    limit = run.train.max_logprob_mismatch
    for name, value in metrics.items():
        if limit is not None and name.endswith("/logprob_gap_max") and not value <= limit:
            raise EngineError(
                f"{name} is {value:.4g} at step {step}; at most {limit:g} is allowed: engine and "
                "trainer give other log-probabilities to the same tokens under the same weights",
                where=run.where("train.max_logprob_mismatch"),
                hint="look for stale weights or caches in the engine, another temperature, or "
                "lower precision (bfloat16 alone gives up to 0.3)",
            )
