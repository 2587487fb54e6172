"""How a step's prompts become sequences, minibatches and microbatches."""

from typing import Any, Literal

from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ops.buffer import Append
from flowrl.ops.control import SampleUntil
from flowrl.ops.data import Select
from flowrl.ops.division import Minibatches
from flowrl.ops.model import Generate, Update
from flowrl.ops.uses import tokenizing_role


def checked_batches(run: RunFile, graph: Graph) -> str:
    """Check the batch sizes against each other; return the sentence that says what follows.

    Raises:
        RunFileError: the sequences of a step don't divide into minibatches, or a step reads too
            few prompts to keep so many. Where samples are chosen or carried, minibatches are as
            equal as may be.
    """
    ops = [node.op for node in graph.walk()]
    samples = next((op.n for op in ops if isinstance(op, Generate)), None)
    until = next((node for node in graph.walk() if isinstance(node.op, SampleUntil)), None)
    divided = next((node for node in graph.walk() if isinstance(node.op, Minibatches)), None)
    prompts, key = run.train.prompts_per_step, "train.prompts_per_step"
    where = run.where(key)
    if until and isinstance(until.op, SampleUntil) and until.op.groups:
        _check_rounds(prompts, until.op, f"{where}\n{until.loc.excerpt()}")
        prompts, key, where = until.op.groups, "groups", until.loc.excerpt()
    role = run.engines.role(tokenizing_role(graph))
    chosen = any(isinstance(op, Select | Append) for op in ops)
    said: dict[str, Any] = {
        "tokens_per_microbatch": role.train.tokens_per_microbatch,
        "chosen": chosen,
        "until": until is not None,
        "trains": any(isinstance(op, Update) for op in ops),
    }
    if divided is None:
        return batch_sentence(prompts, samples, **said)
    division: Any = divided.op
    if not chosen:
        where = f"{where}\n{divided.loc.excerpt()}"
        by = division.by
        check_batches(prompts, samples or 1, division.sequences, by=by, key=key, where=where)
    return batch_sentence(
        prompts, samples, minibatch=division.sequences, epochs=division.epochs, **said
    )


def rows_drawn(run: RunFile, graph: Graph) -> tuple[int, int] | None:
    """Return a run's steps and the rows that each draws; None if that is not known before."""
    until = any(isinstance(node.op, SampleUntil) for node in graph.walk())
    return None if until else (run.train.steps, run.train.prompts_per_step)


def _check_rounds(prompts_per_step: int, op: SampleUntil, where: str) -> None:
    """Refuse more groups than all rounds read prompts: the first step would end the run."""
    read, groups = op.rounds * prompts_per_step, op.groups or 0
    if op.shortfall == "error" and groups > read:
        raise RunFileError(
            f"a step can't keep `groups` = {groups} prompts: {_count(op.rounds, 'round')} of "
            f"`train.prompts_per_step` = {prompts_per_step} read {read}",
            where=where,
            hint=f"set `prompts_per_step` to at least {-(-groups // op.rounds)}, or `groups` to "
            f"at most {read}",
        )


def check_batches(
    prompts_per_step: int,
    samples: int,
    minibatch: int,
    *,
    by: Literal["group", "sequence"] = "group",
    key: str = "train.prompts_per_step",
    where: str = "",
) -> None:
    """Check that a step's sequences split evenly into minibatches, or are all in one.

    Args:
        prompts_per_step: prompts that a step reads.
        samples: completions a prompt.
        minibatch: sequences a minibatch, at most: a step may have fewer.
        by: what a minibatch keeps whole; `group`: all samples of a prompt.
        key: what says how many prompts.
        where: the place of the keys, for the error.

    Raises:
        RunFileError: a remainder is left, or a minibatch would split a group.
    """
    sequences = prompts_per_step * samples
    if minibatch >= sequences:
        return
    product = f"`{key}` = {prompts_per_step} x samples = {samples}"
    if minibatch < 1 or sequences % minibatch:
        remainder = f": remainder {sequences % minibatch}" if minibatch > 0 else ""
        raise RunFileError(
            f"{sequences} responses a step ({product}) don't split into minibatches of "
            f"{minibatch}{remainder}",
            where=where,
            hint=f"a minibatch of {_divisor_near(sequences, minibatch, samples, by)} fits",
        )
    if by == "group" and minibatch % samples:
        raise RunFileError(
            f"minibatches of {minibatch} split the groups of {samples} samples of a prompt: "
            f"remainder {minibatch % samples}",
            where=where,
            hint=f"a minibatch of {_divisor_near(sequences, minibatch, samples, by)} fits",
        )


def batch_sentence(
    prompts_per_step: int,
    samples: int | None,
    *,
    minibatch: int | None = None,
    epochs: int = 1,
    tokens_per_microbatch: int,
    chosen: bool = False,
    until: bool = False,
    trains: bool = True,
) -> str:
    """Return the sentence that says what the batch sizes come to.

    Args:
        prompts_per_step: prompts, or rows, that a step reads.
        samples: completions a prompt; None for a program that doesn't sample.
        minibatch: sequences an update, at most; None: all of the step's.
        epochs: times that a step goes through its sequences.
        tokens_per_microbatch: most tokens in a forward pass.
        chosen: whether updates are on samples chosen among these, or carried: on how many, only
            the step will tell.
        until: whether prompts are drawn until `prompts_per_step` of them are kept.
        trains: whether the program has an update.
    """
    sequences = prompts_per_step * (samples or 1)
    room = minibatch or sequences
    minibatch = room if chosen else min(room, sequences)
    if samples is None:
        drawn = f"A step reads {_count(prompts_per_step, 'row')}"
    else:
        each = "1 prompt" if prompts_per_step == 1 else f"each of {prompts_per_step} prompts"
        completions = _count(samples, "completion")
        verb = "keeps" if until else "samples"
        drawn = f"A step {verb} {completions} of {each}: {_count(sequences, 'sequence')}"
    if not trains:
        return f"{drawn}; it trains nothing."
    updates = sequences // minibatch * epochs
    number = "one update" if updates == 1 else f"{updates} updates"
    of = f"{number} of {minibatch}"
    if chosen:
        of = (
            "one update of those chosen" if updates == 1 else f"updates of up to {minibatch} chosen"
        )
    rounds = f" in {epochs} epochs" if epochs > 1 else ""
    rounds += f", as a minibatch has room for {room}" if room > minibatch else ""
    return f"{drawn}, {of}{rounds}; microbatches hold at most {tokens_per_microbatch} tokens."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _divisor_near(sequences: int, minibatch: int, samples: int, by: str) -> int:
    """Return the minibatch nearest to the wanted one that fits."""
    unit = samples if by == "group" else 1
    fitting = [size for size in range(unit, sequences + 1, unit) if sequences % size == 0]
    return min(fitting, key=lambda size: abs(size - minibatch))
