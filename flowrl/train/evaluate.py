"""Evaluation: a program without updates, run on held-out prompts."""

from collections import defaultdict
from collections.abc import Callable, Mapping
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
from flowrl.runtime.executor import LocalExecutor
from flowrl.runtime.host import Host
from flowrl.runtime.local import RoleSetup, load_models, pin_threads
from flowrl.stages import Lowered, trace
from flowrl.train.prepare import load_tokenizers, open_one, role_setup

CHUNK = 256
"""Prompts that are sampled in one go."""


@attrs.frozen(eq=False)
class Evaluation:
    """Held-out prompts, and the program that scores a model on them.

    Its seeds are its own, so that it changes nothing in training; each evaluation draws the same.
    """

    lowered: Lowered
    data: Dataset
    prompts: int
    host: Host

    def run(self) -> dict[str, float]:
        """Return the metrics of the model as it is now: `eval/reward`, `eval/greedy`, ..."""
        cursor = self.data.cursor()
        totals: dict[str, float] = defaultdict(float)
        for start in range(0, self.prompts, CHUNK):
            count = min(CHUNK, self.prompts - start)
            executor = LocalExecutor(
                self.lowered.graph, self.lowered.traced.inputs, self.host, count
            )
            metrics = executor.step(executor.first(), {"prompts": cursor}, start).metrics
            for name, value in metrics.items():
                totals[name] += value * count
        counted = ("tokens/", "reward/")
        means = {name: value / self.prompts for name, value in totals.items()}
        return {f"eval/{n}": value for n, value in means.items() if not n.startswith(counted)}


def open_evaluation(
    run: RunFile, table: EvalTable, role: str, tokenizer: Any, pool: RewardPool, host: Host
) -> Evaluation:
    """Return the evaluation that `[eval]` describes, of the model that `host` has for `role`.

    Raises:
        FlowrlError: the data or the settings can't be used.
    """
    lowered = lower_evaluation(run, table, role_setup(run, role))
    data = open_one(run, "eval.data", "prompts", tokenizer, pool)
    count = min(data.rows, table.prompts or data.rows)
    ordered = attrs.evolve(data, shuffle=False, sampler=None, epochs=None)
    return Evaluation(lowered, ordered, count, _host(run, lowered, role, tokenizer, pool, host))


def lower_evaluation(run: RunFile, table: EvalTable, setup: RoleSetup) -> Lowered:
    """Return `programs/evaluate.py` as `[eval]` sets it.

    Raises:
        RunFileError: there are several rewards and none is named.
    """
    rewards = list(run.reward.functions)
    reward = table.reward or (rewards[0] if len(rewards) == 1 else None)
    if reward is None:
        raise RunFileError(
            f"[eval] must say which reward to report; [reward] has {', '.join(rewards) or 'none'}",
            where=run.where("eval"),
            hint='add `reward = "..."` to [eval]',
        )
    program = load_program("evaluate")
    names = ("samples", "temperature", "greedy", "pass_at")
    settings = {name: getattr(table, name) for name in names} | {"reward": reward}
    if table.max_tokens:
        sampling = attrs.evolve(setup.sampling, max_tokens=table.max_tokens)
        setup = attrs.evolve(setup, sampling=sampling)
    return trace(program, **settings).lower(models={"policy": setup})


def _host(
    run: RunFile, lowered: Lowered, role: str, tokenizer: Any, pool: RewardPool, training: Host
) -> Host:
    setup = lowered.models["policy"]
    host = Host(
        models={"policy": training.models[role]},
        sampling={"policy": setup.sampling},
        decoders={"policy": tokenizer},
        score=score_function(pool, run.reward.on_reward_error),
        drop_failed=run.reward.on_reward_error == "drop_group",
        sequences_per_block={"policy": setup.sequences_per_block},
        seed=training.seed_of(-1),
    )
    host.generators = {"policy": training.generators.get(role) or _generator(setup, tokenizer)}
    return host


def _generator(setup: RoleSetup, tokenizer: Any) -> Any:
    from flowrl.runtime.engine import load

    return load("generate", setup.generator)(setup.model, tokenizer)


def eval_checkpoint(
    path: str,
    checkpoint: str,
    sets: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
) -> Mapping[str, float]:
    """Evaluate a checkpoint as the `[eval]` of a run file says.

    Args:
        path: the run file.
        checkpoint: a checkpoint folder of a run, or a transformers folder.
        sets: `a.b=value` texts over the run file.
        say: is told each line to print.

    Raises:
        FlowrlError: the run file, the checkpoint or the data can't be used.
    """
    run = load_run_file(path, sets)
    if run.eval is None:
        raise RunFileError(
            f"{path} has no [eval]", hint="add `[eval]` with `[eval.data]` for what differs"
        )
    role = "policy" if "policy" in run.models else next(iter(run.models))
    setup = role_setup(run, role)
    setup = attrs.evolve(
        setup, model=attrs.evolve(setup.model, path=str(_folder(checkpoint, role)))
    )
    lowered = lower_evaluation(run, run.eval, setup)
    pin_threads(run.engines.threads)
    tokenizers = load_tokenizers(lowered)
    from flowrl.rewards.spec import RewardSpec

    specs = {n: run.structure(RewardSpec, f"reward.{n}") for n in run.reward.functions}
    with RewardPool(specs, workers=run.reward.workers, folder=run.resolve(".")) as pool:
        host = Host(seed=run.train.seed)
        load_models(lowered.graph, lowered.models, tokenizers, host)
        tokenizer = tokenizers["policy"]
        data = open_one(run, "eval.data", "prompts", tokenizer, pool)
        say(data.sentence())
        host.models[role] = host.models["policy"]
        host.generators = {role: host.generators["policy"]}
        ordered = attrs.evolve(data, shuffle=False, sampler=None, epochs=None)
        count = min(data.rows, run.eval.prompts or data.rows)
        own = _host(run, lowered, role, tokenizer, pool, host)
        metrics = Evaluation(lowered, ordered, count, own).run()
    for name, value in metrics.items():
        say(f"{name}: {value:.4f}")
    return metrics


def _folder(checkpoint: str, role: str) -> Path:
    """Return the model's folder in a checkpoint, or the folder itself."""
    inner = Path(checkpoint) / role
    return inner if inner.is_dir() else Path(checkpoint)
