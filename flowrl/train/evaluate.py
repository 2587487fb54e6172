"""Evaluation: a program without updates, run on held-out prompts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.programs import load_program
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.config.schema import EvalTable
from flowrl.data.dataset import Dataset
from flowrl.errors import RunFileError
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scoring import score_function
from flowrl.runtime.engine import Generator, load
from flowrl.runtime.executor import LocalExecutor
from flowrl.runtime.host import Host, Resident
from flowrl.runtime.local import RoleSetup, load_models, pin_threads
from flowrl.stages import Lowered, trace
from flowrl.train.prepare import (
    load_tokenizers,
    lower,
    open_one,
    open_pool,
    reader,
    role_setup,
)


@attrs.frozen(eq=False)
class Evaluation:
    """Held-out prompts, and the program that scores a model on them.

    Its seeds are its own, so that it changes nothing in training; each evaluation draws the same.

    Attributes:
        lowered: `programs/evaluate.py`, as `[eval]` sets it.
        data: the held-out prompts.
        prompts: how many of them, from the first.
        host: its own, with what it needs but for the model.
    """

    lowered: Lowered
    data: Dataset
    prompts: int
    host: Host

    def sample_with(self, generator: Generator | None) -> None:
        """Sample with the generator of a training, or with one of its own if that has none."""
        if generator is None:
            setup, tokenizer = self.lowered.models["policy"], self.host.decoders["policy"]
            generator = load("generate", setup.generator)(setup.model, tokenizer)
        self.host.generators = {"policy": generator}

    def run(self, model: Resident) -> dict[str, float]:
        """Return the metrics of a model as it is now: `eval/reward`, `eval/greedy`, ..."""
        self.host.models = {"policy": Resident("policy", model.engine, model.version)}
        inputs = self.lowered.traced.inputs
        executor = LocalExecutor(self.lowered.graph, inputs, self.host, self.prompts)
        done = executor.step(executor.first(), {"prompts": self.data.cursor()}, 0)
        return {f"eval/{name}": value for name, value in done.metrics.items()}


def open_evaluation(
    run: RunFile, setup: RoleSetup, tokenizer: Any, pool: RewardPool
) -> Evaluation | None:
    """Return the evaluation that `[eval]` describes, if there is one.

    Args:
        run: the run file.
        setup: of the model that is evaluated.
        tokenizer: of that model.
        pool: calls the rewards.

    Raises:
        FlowrlError: the data or the settings can't be used.
    """
    if run.eval is None:
        return None
    lowered = lower_evaluation(run, run.eval, setup)
    data = open_one(run, "eval.data", "prompts", tokenizer, pool)
    setup, policy = lowered.models["policy"], run.reward.on_reward_error
    host = Host(
        sampling={"policy": setup.sampling},
        decoders={"policy": tokenizer},
        score=score_function(pool, policy),
        drop_failed=policy == "drop_group",
        sequences_per_block={"policy": setup.sequences_per_block},
        seed=Host(seed=run.train.seed).seed_of(-1),
    )
    in_order = attrs.evolve(data, shuffle=False, sampler=None, epochs=None)
    return Evaluation(lowered, in_order, min(data.rows, run.eval.prompts or data.rows), host)


def lower_evaluation(run: RunFile, table: EvalTable, setup: RoleSetup) -> Lowered:
    """Return `programs/evaluate.py` as `[eval]` sets it."""
    reward = table.reward or next(iter(run.reward.functions))
    program = load_program("evaluate")
    names = ("samples", "temperature", "greedy", "pass_at")
    settings = {name: getattr(table, name) for name in names} | {"reward": reward}
    if table.max_tokens:
        sampling = attrs.evolve(setup.sampling, max_tokens=table.max_tokens)
        setup = attrs.evolve(setup, sampling=sampling)
    return trace(program, **settings).lower(models={"policy": setup})


def eval_checkpoint(
    path: str,
    checkpoint: str,
    sets: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
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
    role = reader(lower(run))
    setup = role_setup(run, role)
    spec = attrs.evolve(setup.model, path=str(_folder(checkpoint, role)))
    lowered = lower_evaluation(run, run.eval, attrs.evolve(setup, model=spec))
    tokenizers = load_tokenizers(lowered)
    with open_pool(run) as pool:
        evaluation = open_evaluation(run, lowered.models["policy"], tokenizers["policy"], pool)
        assert evaluation is not None
        say(evaluation.data.sentence())
        pin_threads(run.engines.threads)
        host = Host()
        load_models(lowered.graph, lowered.models, tokenizers, host)
        evaluation.sample_with(host.generators["policy"])
        metrics = evaluation.run(host.models["policy"])
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
