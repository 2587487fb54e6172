"""A run file and its program, held against each other before anything is loaded."""

from collections.abc import Mapping

from flowrl.compiler.findings import models_read
from flowrl.compiler.groups import check_groups
from flowrl.config.checks.adapters import check_adapters
from flowrl.config.checks.batches import checked_batches
from flowrl.config.checks.layouts import check_layouts, check_machines
from flowrl.config.checks.ranks import check_ranks
from flowrl.config.checks.residency import check_aliases, check_residencies
from flowrl.config.checks.sampling import check_sampled
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.placement.shapes import shape_of
from flowrl.config.run_file import RunFile
from flowrl.config.toml.types import as_toml
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.program import Input, InputKind
from flowrl.ops.model import Head, Score
from flowrl.ops.uses import uses_of

FITS: Mapping[Head, tuple[Head, ...]] = {
    "lm": ("lm", "lm+value"),
    "lm+value": ("lm+value",),
    "value": ("value", "lm+value", "reward", "token_reward"),
    "reward": ("reward", "token_reward", "value"),
    "token_reward": ("token_reward", "reward", "value"),
}
"""The heads that a folder may be loaded with, by the one that is read."""


def check_run(run: RunFile, graph: Graph, inputs: tuple[Input, ...]) -> None:
    """Check that a run file gives what its program asks for, and nothing that it doesn't know.

    Args:
        run: the run file.
        graph: the program's, after `simplify`: what is read no more need not be given.
        inputs: the program's own arguments.

    Raises:
        RunFileError: a model, a reward or a data input is missing or unknown, a model has another
            head than is read, or an adapter that isn't trained, pools can't divide a model over
            their workers, have more GPUs than the machines, drop weights that nothing brings
            again, or lay out a model that doesn't divide so, a step doesn't divide into
            minibatches, or an engine can't sample as it is asked to.
        ProgramError: advantages are taken within groups of one sample.
    """
    roles = [spec.name for spec in inputs if spec.kind is InputKind.MODEL]
    read = models_read(graph)
    run.check_models([role for role in roles if role in read], roles)
    check_ranks(run, graph)
    cluster = cluster_of(run, graph)
    check_machines(run, cluster)
    check_layouts(run, graph)
    check_residencies(run, graph, cluster)
    if run.cluster.executor == "ray":
        check_aliases(run, graph, cluster, {role: shape_of(run, role) for role in run.roles})
    check_heads(run, graph)
    check_adapters(run, graph, cluster)
    check_rewards(run, graph)
    check_inputs(run, inputs)
    checked_batches(run, graph)
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
    """Refuse rewards that the program scores by and the run file doesn't bind.

    Raises:
        RunFileError: naming them, and the line that asks for them.
    """
    bound = run.reward.functions
    for node in graph.walk():
        names = node.op.functions if isinstance(node.op, Score) else ()
        if missing := [name for name in names if name not in bound]:
            has = ", ".join(f"`{name}`" for name in bound) or "no reward"
            bind = " and ".join(f'`{name} = "path.py:function"`' for name in missing)
            raise RunFileError(
                f"the program scores by {' and '.join(f'`{name}`' for name in missing)}, but "
                f"[reward] has {has}",
                where=f"{run.where('reward')}\n{node.loc.excerpt()}",
                hint=f"bind {'them' if len(missing) > 1 else 'it'} in [reward]: {bind}",
            )


def check_inputs(run: RunFile, inputs: tuple[Input, ...]) -> dict[str, str]:
    """Return the dotted key that describes each data input of the program.

    Raises:
        RunFileError: the run file describes other inputs.
    """
    read = [spec.name for spec in inputs if spec.kind is InputKind.DATA]
    keys = run.data_keys()
    keys = dict.fromkeys(read, keys[""]) if "" in keys else keys
    if set(read) != set(keys):
        raise RunFileError(
            f"[data] describes {', '.join(keys)}; the program reads {', '.join(read)}",
            where=run.where("data"),
            hint="give each data input of the program a table `[data.<input>]`",
        )
    return keys
