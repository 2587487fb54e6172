"""A run file and its program, held against each other before anything is loaded."""

from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.compiler.cluster import OTHER_ROLES, Cluster, Pool
from flowrl.compiler.findings import models_read
from flowrl.compiler.groups import check_groups
from flowrl.config.bases import bases_of, check_adapters
from flowrl.config.batches import batch_sentence, check_batches
from flowrl.config.layouts import check_layouts, laid_out
from flowrl.config.programs import load_program
from flowrl.config.residency import check_residencies
from flowrl.config.run_file import RunFile
from flowrl.config.sampling import check_sampled
from flowrl.config.schema import PoolSpec
from flowrl.config.types import as_toml
from flowrl.errors import ProgramError, RunFileError, nearest
from flowrl.ir.graph import Graph
from flowrl.ir.program import Input, Kind, Program
from flowrl.ops.buffer import Append
from flowrl.ops.control import SampleUntil
from flowrl.ops.correction import corrected
from flowrl.ops.data import Select
from flowrl.ops.division import Minibatches
from flowrl.ops.model import PLAIN, Generate, Head, Score, Update
from flowrl.ops.uses import uses_of
from flowrl.stages import Traced, trace
from flowrl.user_file import locating

FITS: Mapping[Head, tuple[Head, ...]] = {
    "lm": ("lm", "lm+value"),
    "lm+value": ("lm+value",),
    "value": ("value", "lm+value", "reward", "token_reward"),
    "reward": ("reward", "token_reward", "value"),
    "token_reward": ("token_reward", "reward", "value"),
}
"""The heads that a folder may be loaded with, by the one that is read."""


def trace_run(run: RunFile) -> Traced:
    """Trace the program of a run file, with its hyperparameters and its sampling.

    Raises:
        FlowrlError: there is no such program, a hyperparameter is wrong, or the program is.
    """
    try:
        program = load_program(run.program_file, run.program.name)
    except ProgramError as error:
        if run.program.name is None:
            raise
        asked, hint = run.where("program.name"), error.hint
        raise ProgramError(error.problem, where=error.where, made=[asked], hint=hint) from error
    hyperparameters = run.hyperparameters(program.signature)
    program = _corrected(program, run)
    with locating(run.program_file):
        return trace(program, sampling_of(run), run.reward.models, **hyperparameters)


def _corrected(program: Program, run: RunFile) -> Program:
    """Return the program with the weights of `[correction]`, if there is that table."""
    if run.correction is None:
        return program
    try:
        return corrected(program, **attrs.asdict(run.correction))
    except ProgramError as error:
        where = run.where("correction")
        raise RunFileError(error.problem, where=where, hint=error.hint) from None


def sampling_of(run: RunFile) -> dict[str, dict[str, Any]]:
    """Return what the run file says of the distribution that each role samples from."""
    tables = {role: table.generate for role, table in run.engines.roles.items()}
    given = {role: {n: getattr(t, n) for n in PLAIN} for role, t in tables.items()}
    return {role: {n: x for n, x in of.items() if x is not None} for role, of in given.items()}


def cluster_of(run: RunFile) -> Cluster:
    """Return the pools that a run file is run on, with all layouts; see `laid_out`."""
    return laid_out(run, written_cluster(run))


def written_cluster(run: RunFile) -> Cluster:
    """Return the pools of a run file as they stand there; one for everything if it has none.

    On Ray, what no pool claims of `data` and `reward` lives in a pool of its own, `data`; but a
    model that gives the reward of that name lives with the other models.
    """
    claims = {name: spec.roles for name, spec in run.cluster.pools.items()} or {"main": ()}
    claimed = {role for roles in claims.values() for role in roles}
    if run.cluster.executor == "ray" and (
        rest := set(OTHER_ROLES) - claimed - set(run.reward.models)
    ):
        claims["data"] = (*claims.get("data", ()), *sorted(rest))
    pools, first = [], 0
    for name, roles in claims.items():
        spec = run.cluster.pools.get(name, PoolSpec())
        pools.append(Pool(name, spec.gpus, roles, spec.layouts, first, spec.residencies))
        first += spec.gpus
    return Cluster(tuple(pools), bases=bases_of(run))


def check_run(run: RunFile, graph: Graph, inputs: tuple[Input, ...]) -> None:
    """Check that a run file gives what its program asks for, and nothing that it doesn't know.

    Args:
        run: the run file.
        graph: the program's, after `simplify`: what is read no more need not be given.
        inputs: the program's own arguments.

    Raises:
        RunFileError: a model, a reward or a data input is missing or unknown, a model has another
            head than is read, or an adapter that isn't trained, a pool claims a role that the
            program doesn't have, drops weights that nothing brings again, or lays out a model that
            doesn't divide so, a step doesn't divide into minibatches, or an engine can't sample
            as it is asked to.
        ProgramError: advantages are taken within groups of one sample.
    """
    roles = [spec.name for spec in inputs if spec.kind is Kind.MODEL]
    read = models_read(graph)
    run.check_models([role for role in roles if role in read], roles)
    cluster = cluster_of(run)
    cluster.check({*roles, *run.reward.models})
    check_layouts(run)
    check_residencies(run, graph, cluster)
    check_heads(run, graph)
    check_adapters(run, graph, cluster)
    check_rewards(run, graph)
    check_inputs(run, inputs)
    batches(run, graph)
    check_groups(graph)
    check_sampled(run, graph)


def check_heads(run: RunFile, graph: Graph) -> None:
    """Refuse a head that the run file gives a role and the program can't read.

    Raises:
        RunFileError: naming the key.
    """
    for role, uses in uses_of(graph).items():
        given = run.models[role].head if role in run.models else None
        if given and given not in (fits := FITS[uses.head]):
            raise RunFileError(
                f"the program needs {' or '.join(map(as_toml, fits))} as the head of `{role}`; "
                f"got {as_toml(given)}",
                where=run.where(f"models.{role}.head"),
                hint="leave it out: it follows from what the program reads",
            )


def check_rewards(run: RunFile, graph: Graph) -> None:
    """Refuse a reward that the program scores by and the run file doesn't bind.

    Raises:
        RunFileError: naming it, and the line that asks for it.
    """
    bound = run.reward.functions
    for node in graph.walk():
        for name in node.op.functions if isinstance(node.op, Score) else ():
            if name not in bound:
                raise RunFileError(
                    f"the program scores by `{name}`, but [reward] has "
                    f"{', '.join(f'`{n}`' for n in bound) or 'no reward'}{nearest(name, bound)}",
                    where=node.loc.excerpt(),
                    hint=f'bind it: `[reward] {name} = "path.py:function"`',
                )


def check_inputs(run: RunFile, inputs: tuple[Input, ...]) -> dict[str, str]:
    """Return the dotted key that describes each data input of the program.

    Raises:
        RunFileError: the run file describes other inputs.
    """
    read = [spec.name for spec in inputs if spec.kind is Kind.DATA]
    keys = run.data_keys()
    keys = dict.fromkeys(read, keys[""]) if "" in keys else keys
    if set(read) != set(keys):
        raise RunFileError(
            f"[data] describes {', '.join(keys)}; the program reads {', '.join(read)}",
            where=run.where("data"),
            hint="give each data input of the program a table `[data.<input>]`",
        )
    return keys


def batches(run: RunFile, graph: Graph) -> str:
    """Check the batch sizes against each other; return the sentence that says what follows.

    Raises:
        RunFileError: the sequences of a step don't divide into minibatches. Where samples are
            chosen or carried, minibatches are as equal as may be.
    """
    ops = [node.op for node in graph.walk()]
    samples = next((op.n for op in ops if isinstance(op, Generate)), None)
    until = next((node for node in graph.walk() if isinstance(node.op, SampleUntil)), None)
    division = next((op for op in ops if isinstance(op, Minibatches)), None)
    prompts, key = run.train.prompts_per_step, "train.prompts_per_step"
    where = run.where(key)
    if until and isinstance(until.op, SampleUntil):
        prompts, key, where = until.op.groups, "groups", until.loc.excerpt()
    role = run.engines.role(next(iter(run.models)))
    chosen = any(isinstance(op, Select | Append) for op in ops)
    said: dict[str, Any] = {
        "tokens_per_microbatch": role.train.tokens_per_microbatch,
        "chosen": chosen,
        "until": until is not None,
        "trains": any(isinstance(op, Update) for op in ops),
    }
    if division is None:
        return batch_sentence(prompts, samples, **said)
    by: Any = division.by
    if not chosen:
        check_batches(prompts, samples or 1, division.sequences, by=by, key=key, where=where)
    return batch_sentence(
        prompts, samples, minibatch=division.sequences, epochs=division.epochs, **said
    )
