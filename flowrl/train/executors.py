"""Where a run runs: in this process, or on pools of Ray's workers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from importlib.util import find_spec
from typing import Any

import attrs

from flowrl.config.placement.placed import Placed
from flowrl.config.placement.weights import sync_sentences
from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError
from flowrl.ops.uses import tokenizing_role
from flowrl.runtime.executor import Executor
from flowrl.stages import Lowered
from flowrl.train.evaluate import (
    Evaluation,
    evaluation_tokenizers,
    lower_evaluation,
    open_evaluation,
)
from flowrl.train.folder import open_folder
from flowrl.train.opening import TRAINING, DataOpening, RewardOpening
from flowrl.train.prepare import check_gpus, load_tokenizers

Say = Callable[[str], None]


@attrs.frozen(eq=False)
class Opened:
    """A run with its data read and its models loaded.

    Attributes:
        executor: of the program.
        cursors: the start of each data input.
        evaluation: that of `[eval]`, if there is one.
        tokenizers: by role.
    """

    executor: Executor
    cursors: Mapping[str, Any]
    evaluation: Evaluation | None
    tokenizers: Mapping[str, Any]


def opened(run: RunFile, lowered: Lowered, say: Say) -> AbstractContextManager[Opened]:
    """Open a run where its run file says; what is started ends when the block ends.

    Rewards are imported first, then data are read, then the folder is made; models are loaded
    last.

    Args:
        run: the run file.
        lowered: its program.
        say: is told what was opened.

    Raises:
        FlowrlError: a reward, a row, the folder, a pool or a model can't be used.
    """
    for sentence in sync_sentences(run, Placed.by_run_file(run, lowered.graph)):
        say(sentence)
    return (_on_ray if run.cluster.executor == "ray" else _here)(run, lowered, say)


@contextmanager
def _here(run: RunFile, lowered: Lowered, say: Say) -> Iterator[Opened]:
    check_gpus(run, lowered)
    tokenizers, role = load_tokenizers(lowered, run), tokenizing_role(lowered.graph)
    with closing(RewardOpening.of(run)()) as rewards:
        data = DataOpening.of(run, lowered, tokenizers)(rewards.columns)
        for each in data.values():
            say(each.sentence())
        open_folder(run.folder)
        if run.eval is not None:
            held_out = DataOpening.held_out(run, tokenizers[role], role)(rewards.columns)["prompts"]
            say(f"held out: {held_out.sentence()}")
        executor = lowered.compile(
            rows_per_step=run.train.prompts_per_step,
            tokenizers=tokenizers,
            score=rewards.score(TRAINING),
            drop_failed=run.reward.drops_failed,
            seed=run.train.seed,
            threads=run.engines.threads,
            check_every=run.cluster.check_weights_every,
        ).executor
        evaluation = None
        if run.eval is not None:
            scored = lower_evaluation(run, run.eval, lowered.models[role])
            evaluation = open_evaluation(
                run,
                lowered=scored,
                data=held_out,
                rewards=rewards,
                training=executor.host,
                role=role,
                tokenizers=evaluation_tokenizers(scored, tokenizers, role),
            )
        cursors = {name: each.cursor() for name, each in data.items()}
        yield Opened(executor, cursors, evaluation, tokenizers)


@contextmanager
def _on_ray(run: RunFile, lowered: Lowered, say: Say) -> Iterator[Opened]:
    if find_spec("ray") is None:
        raise RunFileError(
            '`cluster.executor` is "ray", but Ray is not installed',
            where=run.where("cluster.executor"),
            hint='pip install "flowrl[ray]", or set `executor = "local"`',
        )
    from flowrl.train import on_ray

    tokenizers = load_tokenizers(lowered, run)
    with on_ray.pools_of(run, lowered.cluster) as pools:
        for line in on_ray.described(lowered.cluster, pools):
            say(line)
        training, held_out = on_ray.executors(run, lowered, tokenizers, pools)
        training.open_rewards()
        for _, sentence in training.open_data():
            say(sentence)
        open_folder(run.folder)
        if held_out is not None:
            ((rows, sentence),) = held_out.open_data(training.columns)
            say(f"held out: {sentence}")
        training.load(run.train.prompts_per_step)
        evaluation = None
        if held_out is not None and run.eval is not None:
            held_out.load(min(rows, run.eval.prompts or rows))
            evaluation = Evaluation(held_out, held_out.first, held_out.cursors)
        yield Opened(training, training.cursors(), evaluation, tokenizers)
