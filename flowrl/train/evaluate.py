"""Evaluation: a program without updates, run on held-out prompts."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.config.tables.schema import EvalTable
from flowrl.config.traced import POLICY, trace_evaluation
from flowrl.data.dataset import Dataset
from flowrl.data.tokenizer import load_tokenizer
from flowrl.errors import RunFileError
from flowrl.ops.uses import tokenizing_role
from flowrl.runtime.executor import Executor, LocalExecutor
from flowrl.runtime.host import Handle, Host, Resident
from flowrl.runtime.loading import Loader, pin_threads
from flowrl.runtime.role_setup import RoleSetup
from flowrl.runtime.said import heard
from flowrl.stages import Lowered
from flowrl.stdout import tell
from flowrl.train.opening import EVALUATION, DataOpening, OpenRewards, RewardOpening
from flowrl.train.prepare import load_tokenizers, lower, role_setup


@attrs.frozen(eq=False)
class Evaluation:
    """Held-out prompts, and the program that scores a model on them.

    Attributes:
        executor: runs that program.
        models: returns the model as it is now, and one that gives the reward, by role.
        cursors: returns the start of the data.
    """

    executor: Executor
    models: Callable[[], Mapping[str, Any]]
    cursors: Callable[[], Mapping[str, Any]]

    def run(self) -> dict[str, float]:
        """Return the metrics of the model as it is now: `eval/reward`, `eval/greedy`, ..."""
        done = self.executor.step(dict(self.models()), self.cursors(), 0)
        shown = {n: value for n, value in done.metrics.items() if not n.startswith("tokens/")}
        return {f"eval/{name}": value for name, value in shown.items()}


def seed_of(run: RunFile) -> int:
    """Return the seed of evaluations: each draws the same, and changes nothing in training."""
    return Host(seed=run.train.seed).seed_of(-1)


def open_evaluation(
    run: RunFile,
    *,
    lowered: Lowered,
    data: Dataset,
    rewards: OpenRewards,
    training: Host,
    role: str,
    tokenizers: Mapping[str, Any],
) -> Evaluation:
    """Return an evaluation in this process.

    Args:
        run: the run file.
        lowered: `programs/evaluate.py`, as `[eval]` sets it.
        data: the held-out prompts.
        rewards: score the completions.
        training: has the model, and its generator unless training doesn't sample from it; and one
            that gives the reward, if training reads it.
        role: the model's, there.
        tokenizers: by the role that they have here.
    """
    host = Host(
        score=rewards.score(EVALUATION), drop_failed=run.reward.drops_failed, seed=seed_of(run)
    )
    Loader(lowered.graph, lowered.models, tokenizers, host).borrow(training, {POLICY: role})

    def models() -> Mapping[str, Handle]:
        now = training.models[role]
        policy = Resident(POLICY, now.engine, now.version)
        return {n: Handle(m, m.version) for n, m in ({POLICY: policy} | host.models).items()}

    assert run.eval is not None
    count = min(data.rows, run.eval.prompts or data.rows)
    executor = LocalExecutor(lowered.graph, lowered.traced.inputs, host, count)
    return Evaluation(executor, models, lambda: {"prompts": data.cursor()})


def lower_evaluation(
    run: RunFile, table: EvalTable, setup: RoleSetup, cluster: Cluster | None = None
) -> Lowered:
    """Return `programs/evaluate.py` as `[eval]` sets it, for the model that `setup` is of."""
    if table.max_tokens:
        sampling = attrs.evolve(setup.sampling, max_tokens=table.max_tokens)
        setup = attrs.evolve(setup, sampling=sampling)
    traced = trace_evaluation(run)
    judges = [spec.name for spec in traced.inputs if spec.name in run.reward.models]
    models = {POLICY: setup} | {name: role_setup(run, traced.graph, name) for name in judges}
    return traced.lower(cluster, models)


def evaluation_tokenizers(
    lowered: Lowered, training: Mapping[str, Any], role: str
) -> dict[str, Any]:
    """Return the tokenizers of an evaluation, by its roles.

    Args:
        lowered: what `lower_evaluation` returned.
        training: the tokenizers of the run, by its roles.
        role: which of these is evaluated.
    """
    judges = {n: s.model.path for n, s in lowered.models.items() if n != POLICY}
    known = {name: training.get(name) or load_tokenizer(path) for name, path in judges.items()}
    return {POLICY: training[role], **known}


def eval_checkpoint(
    path: str,
    checkpoint: str,
    sets: tuple[str, ...] = (),
    say: Callable[[str], None] = tell,
) -> dict[str, float]:
    """Evaluate a checkpoint as the `[eval]` of a run file says.

    Args:
        path: the run file.
        checkpoint: a checkpoint folder of a run, or a transformers folder.
        sets: `a.b=value` texts over the run file.
        say: is told each line to print.

    Returns:
        The metrics; those of the run's own evaluation at that step.

    Raises:
        FlowrlError: the run file, the checkpoint or the data can't be used.
    """
    run = load_run_file(path, sets)
    if run.eval is None:
        raise RunFileError(
            f"{path} has no [eval]", hint="add `[eval]`, with `[eval.data]` for what differs"
        )
    training = lower(run).graph
    role = tokenizing_role(training)
    setup = role_setup(run, training, role)
    spec = attrs.evolve(setup.model, path=str(_folder(checkpoint, role)), lora=None)
    lowered = lower_evaluation(run, run.eval, attrs.evolve(setup, model=spec))
    tokenizers = load_tokenizers(lowered)
    with closing(RewardOpening.of(run)()) as rewards:
        opening = DataOpening.held_out(run, tokenizers[POLICY], role)
        data = opening(rewards.columns)["prompts"]
        say(data.sentence())
        pin_threads(run.engines.threads)
        host = Host()
        with heard(say):
            Loader(lowered.graph, lowered.models, tokenizers, host).load()
        metrics = open_evaluation(
            run,
            lowered=lowered,
            data=data,
            rewards=rewards,
            training=host,
            role=POLICY,
            tokenizers=tokenizers,
        ).run()
    for name, value in metrics.items():
        say(f"{name}: {value:.4f}")
    return metrics


def _folder(checkpoint: str, role: str) -> Path:
    """Return the model's folder in a checkpoint, or the folder itself."""
    for folder in (Path(checkpoint) / role, Path(checkpoint)):
        if (folder / "config.json").is_file():
            return folder
    raise RunFileError(
        f"no checkpoint of `{role}`: neither the folder nor its `{role}/` has a config.json",
        where=f"  {checkpoint}",
        hint="give a folder that a run wrote, such as runs/NAME/checkpoint",
    )
