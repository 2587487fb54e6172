"""What a run file says of ranks: workers that run one model of its program together."""

from collections.abc import Collection, Iterator

from flowrl.compiler.cluster import OTHER_ROLES
from flowrl.config.placement.used import used
from flowrl.config.run_file import RunFile
from flowrl.config.tables.cluster import PoolSpec
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout


def check_ranks(run: RunFile, graph: Graph) -> None:
    """Check that pools can divide the models that are read over their workers as it is wanted.

    Raises:
        RunFileError: all that keeps them from it.
    """
    if problems := list(_problems(run, {role for role, _ in used(run, graph)})):
        raise run.source.error(problems)


def _problems(tables: Tables, read: Collection[str]) -> Iterator[Problem]:
    pools = tables.cluster.pools
    for role in (role for role in tables.engines.divided if pools and role in read):
        pool, shard = tables.cluster.home(role), ("engines", role, "train", "shard")
        yield from _misfits(tables, role, pool, shard)
        yield from _undivided(pools[pool], pool, role, shard)
    if tables.cluster.executor != "ray":
        return
    for role, pool, layout in _laid_out(tables):
        if role in read:
            yield from _misfits(tables, role, pool, layout)
            yield from _not_whole(pools[pool], role, layout)
    for pool, spec in pools.items():
        for use in spec.layouts:
            role, _, kind = use.partition(".")
            if kind == "generate" and role in read:
                yield from _not_sampled(tables, use, ("cluster", "pools", pool, "layouts", use))


def _laid_out(tables: Tables) -> Iterator[tuple[str, str, KeyPath]]:
    """Yield each role without `shard` that several workers run, its pool, and the key of that."""
    split = tables.engines.divided
    for pool, spec in tables.cluster.pools.items():
        for use in spec.layouts:
            role, _, kind = use.partition(".")
            if kind != "generate" and role not in split and spec.workers > 1:
                yield role, pool, ("cluster", "pools", pool, "layouts", use)


def _misfits(tables: Tables, role: str, pool: str, why: KeyPath) -> Iterator[Problem]:
    """Yield what keeps a pool's workers from running a role together; `why` says that they do."""
    path: KeyPath = ("cluster", "pools", pool)
    spec = tables.cluster.pools[pool]
    if 0 < spec.gpus < spec.workers:
        yield Problem(
            (*path, "gpus"),
            f"pool `{pool}` has {spec.gpus} GPUs for {spec.workers} workers; each that has a share "
            f"of `{role}` needs a GPU of its own",
            hint=f"set `gpus = {spec.workers}`, or 0 for the CPU",
            against=(why,),
        )
    for claim in sorted(set(OTHER_ROLES).intersection(spec.roles) - {*tables.reward.models}):
        yield Problem(
            (*path, "roles"),
            f"pool `{pool}` claims `{claim}`, which is for one worker; those that divide `{role}` "
            "all do the same work",
            hint=f"claim `{claim}` in another pool, or in none",
            against=(why,),
        )
    if tables.cluster.executor == "ray" and spec.workers > 1:
        yield from _unclaimed(tables, role, pool, why)


def _undivided(spec: PoolSpec, pool: str, role: str, shard: KeyPath) -> Iterator[Problem]:
    """Yield layouts of a role with `shard` that FSDP2 doesn't make."""
    path: KeyPath = ("cluster", "pools", pool)
    for use in (role, f"{role}.train"):
        layout = _parsed(spec.layouts.get(use, "1"))
        if layout and not _divides(layout):
            yield Problem(
                (*path, "layouts", use),
                f"the layout of `{use}` is `{spec.layouts[use]}`; divided by fsdp2 it is "
                f"`{Layout(fsdp=spec.workers)}`, or `fsdp` x `dp` of as many ranks",
                hint="leave the layout out, or `shard`",
                against=(shard,),
            )


def _divides(layout: Layout) -> bool:
    """Whether FSDP2 makes a layout."""
    made = Layout(dp=layout.dp, fsdp=layout.fsdp)
    return layout == made and (layout.fsdp > 1 or layout.size == 1)


def _parsed(text: str) -> Layout | None:
    """Return the layout of a text; what is none is told elsewhere."""
    try:
        return Layout.parse(text)
    except RunFileError:
        return None


def _not_whole(spec: PoolSpec, role: str, path: KeyPath) -> Iterator[Problem]:
    """Yield layouts of a role without `shard` that divide its weights."""
    layout = _parsed(spec.layouts[path[-1]])
    if layout and layout != Layout(dp=layout.dp):
        yield Problem(
            path,
            f"the layout of `{path[-1]}` is `{layout}`; without `shard` each worker has whole "
            f"weights, `{Layout(dp=spec.workers)}`",
            hint=f'set `shard = "fsdp2"` in [engines.{role}.train], or leave the layout out',
        )


def _not_sampled(tables: Tables, use: str, path: KeyPath) -> Iterator[Problem]:
    """Yield layouts that no engine samples in: all divide replicas by `tp`."""
    layout = _parsed(tables.cluster.pools[path[2]].layouts[use])
    if layout and layout != Layout(dp=layout.dp, tp=layout.tp):
        yield Problem(
            path,
            f"the layout of `{use}` is `{layout}`; what samples has replicas of `tp` ranks",
            hint=f"`{Layout(tp=layout.size)}` is one replica, `{Layout(dp=layout.size)}` has "
            f"{layout.size}",
        )


def _unclaimed(tables: Tables, role: str, pool: str, why: KeyPath) -> Iterator[Problem]:
    """Yield what a pool has of data and rewards without claiming it."""
    pools, models = tables.cluster.pools, {*tables.reward.models}
    claims = tables.cluster.claims
    rest = sorted(set(OTHER_ROLES) - {*claims, *models})
    if pool == "data" and rest:
        named = " and ".join(f"`{name}`" for name in rest)
        yield Problem(
            ("cluster", "pools", pool),
            f"pool `data` gets {named}, which no pool claims and which is for one worker; those "
            f"that divide `{role}` all do the same work",
            hint="give the pool another name",
            against=(why,),
        )
    called = min(tables.reward.functions.keys() - models, default="reward")
    if "reward" in models and claims.get("reward", next(iter(pools))) == pool:
        yield Problem(
            ("reward", "reward"),
            f"`reward` is a model, so `{called}` scores in pool `{pool}`, which is for one worker; "
            f"those that divide `{role}` all do the same work",
            hint="let `reward` live in a pool of one worker, or give it another name",
            against=(why,),
        )
