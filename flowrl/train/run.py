"""The loop: step, log, save, evaluate."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.findings import findings
from flowrl.compiler.planning import Planned
from flowrl.compiler.simplify import simplify
from flowrl.compiler.target.profile import PROFILE
from flowrl.config.checks.batches import checked_batches
from flowrl.config.checks.inert import inert_keys
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.errors import EngineError, FlowrlError
from flowrl.ir.program import InputKind
from flowrl.runtime.executor import Step
from flowrl.runtime.graph.carry import Carry
from flowrl.runtime.said import heard
from flowrl.stages import Lowered
from flowrl.train.checkpoint import save_checkpoint
from flowrl.train.executors import Opened, opened
from flowrl.train.fit import fitted
from flowrl.train.folder import write_description, writing
from flowrl.train.folders import check_folders
from flowrl.train.loggers import MetricLog
from flowrl.train.op_log import OpLog
from flowrl.train.predict import plan_of, planned_as
from flowrl.train.prepare import lower
from flowrl.train.progress import Progress, progress

GAPS = {
    "logprob_gap_max": "max_logprob_mismatch",
    "logprob_gap_mean": "max_mean_logprob_mismatch",
}
"""What an update measures between engine and trainer, and the key of `[train]` that limits it."""


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
    with progress(run.train.steps, run.log.console) as show, heard(show.note):
        lowered = lower(run)
        show.note(checked_batches(run, lowered.graph))
        traced = lowered.traced
        known = traced.hyperparameters, traced.sampling, traced.reward_models
        found = findings(traced.program, *known, given=run.program.hyperparameters)
        odd = check_folders(run, lowered.graph)
        inert = inert_keys(run, simplify(traced.graph, Cluster()))
        for finding in [*inert, *odd, *found]:
            show.note(finding)
        planned = planned_as(run, lowered, show.note)
        with opened(run, lowered, show.note) as ready:
            try:
                return Loop(run, lowered, planned, ready, show).run()
            except KeyboardInterrupt:
                show.note(f"interrupted; what was written is in {run.folder}")
                raise


@attrs.frozen(eq=False)
class Loop:
    """One run, with its models loaded.

    Attributes:
        conf: the run file.
        lowered: its program.
        planned: what it is planned for, if its run file names machines.
        ready: its executor, data and evaluation.
        show: is told of each step.
    """

    conf: RunFile
    lowered: Lowered
    planned: Planned | None
    ready: Opened
    show: Progress

    def run(self) -> Path:
        """Run all steps; return the last checkpoint's folder."""
        run, ready = self.conf, self.ready
        carry = ready.executor.first()
        write_description(run, plan_of(self.lowered, self.planned))
        graph = self.lowered.graph
        with MetricLog(run.folder, run.log) as log, OpLog(run.folder, graph, run.log) as ops:
            self._evaluate(0, log)
            self.show.begin()
            for number in range(1, run.train.steps + 1):
                done = ready.executor.step(carry, ready.cursors, number - 1)
                self._record(number, done, log, ops)
                self._check_gap(number, carry, done.metrics)
                carry = done.carry
                self._save(number, carry, ops)
                self._evaluate(number, log)
        return run.folder / "checkpoint"

    def _record(self, number: int, done: Step, log: MetricLog, ops: OpLog) -> None:
        self.show.step(number, done)
        if number % self.conf.log.every_steps == 0 or self._last(number):
            phases = {f"seconds/{name}": spent for name, spent in done.seconds.items()}
            log.write(number, {**done.metrics, **phases, "seconds": done.elapsed})
            ops.write(number, done)

    def _save(self, number: int, carry: Carry, ops: OpLog) -> None:
        run, ready = self.conf, self.ready
        every = run.train.checkpoint_every
        if not self._last(number) and (not every or number % every):
            return
        folder = run.folder / ("checkpoint" if self._last(number) else f"checkpoint-{number}")
        inputs = self.lowered.traced.inputs
        carried = {s.name: carry[s.name] for s in inputs if s.kind is InputKind.CARRY}
        save_checkpoint(folder, number, ready.executor, ready.tokenizers, carried, ready.cursors)
        self.show.note(f"checkpoint: {folder}")
        if self.planned and ops.recent:
            profile = fitted(self.planned, self.lowered.graph, ops.recent).profile
            with writing(run.folder):
                profile.save(run.folder / PROFILE)

    def _evaluate(self, number: int, log: MetricLog) -> None:
        evaluation = self.ready.evaluation
        if evaluation is None or not self._evaluation_is_due(number):
            return
        try:
            metrics = evaluation.run()
        except FlowrlError:
            self.show.note(f"the evaluation after step {number} failed")
            raise
        log.write(number, metrics)
        shown = {n: x for n, x in metrics.items() if x or not n.startswith("eval/reward/")}
        self.show.note(f"step {number}: {', '.join(f'{n} {x:.3f}' for n, x in shown.items())}")

    def _evaluation_is_due(self, number: int) -> bool:
        table = self.conf.eval
        if table is None or number == 0:
            return table is not None and table.at_start
        return self._last(number) or bool(table.every_steps and number % table.every_steps == 0)

    def _check_gap(self, number: int, before: Carry, metrics: Mapping[str, float]) -> None:
        """Stop the run if engine and trainer disagree on what was sampled."""
        for role, (gap, key) in product(before, GAPS.items()):
            name, limit = f"{role}/{gap}", getattr(self.conf.train, key)
            if limit is None or (value := metrics.get(name, 0.0)) <= limit:
                continue
            loaded, trained = self.ready.executor.versions(role, before)
            raise EngineError(
                f"{name} is {value:.4g} at step {number}; at most {limit:g} is allowed: the engine "
                f"(weights of version {loaded}) and the trainer (version {trained}) give "
                "different log-probabilities to the same tokens",
                where=self.conf.where(f"train.{key}"),
                hint="look for stale weights or caches in the engine, another temperature, or "
                "lower precision (in bfloat16 rounding alone is 0.3 on a token, and more on some)",
            )

    def _last(self, number: int) -> bool:
        return number == self.conf.train.steps
