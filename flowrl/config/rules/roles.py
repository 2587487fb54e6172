"""What a run file says of roles, held against its models and its pools."""

from collections.abc import Iterator

from flowrl.compiler.cluster import OTHER_ROLES
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted
from flowrl.errors import nearest


def roles_fit(tables: Tables) -> Iterator[Problem]:
    """Yield roles that there are not, and those that two pools claim."""
    yield from _unknown(tables)
    yield from _shared(tables)


def _unknown(tables: Tables) -> Iterator[Problem]:
    models = list(tables.models)
    run = [*models, *(name for name in tables.reward.models if name not in models)]
    named: list[tuple[KeyPath, str, list[str]]] = [
        *((("engines", role), role, run) for role in tables.engines.roles),
        *((("optimizer", role), role, models) for role in tables.optimizer.roles),
        *((("workload", role), role, run) for role in tables.workload.roles),
    ]
    for path, role, known in named:
        if role not in known:
            yield _no_role(path, role, known)
    parts = [f"{model}.{part}" for model in models for part in ("generate", "train")]
    for pool, spec in tables.cluster.pools.items():
        for index, role in enumerate(spec.roles):
            if role not in (known := [*run, *parts, *OTHER_ROLES]):
                yield _no_role(("cluster", "pools", pool, "roles", index), role, known)


def _no_role(path: KeyPath, role: str, known: list[str]) -> Problem:
    return Problem(
        path,
        f"`{dotted(path)}`: no role `{role}`{nearest(role, known)}",
        hint=f"roles are {', '.join(known)}",
    )


def _shared(tables: Tables) -> Iterator[Problem]:
    """A role that two pools claim; `policy` claims `policy.generate` and `policy.train`."""
    claims = [
        (role, pool, index)
        for pool, spec in tables.cluster.pools.items()
        for index, role in enumerate(spec.roles)
    ]
    for number, (role, pool, index) in enumerate(claims):
        for earlier, first_pool, first_index in claims[:number]:
            if f"{role}.".startswith(f"{earlier}.") or f"{earlier}.".startswith(f"{role}."):
                yield Problem(
                    ("cluster", "pools", pool, "roles", index),
                    f"pool `{pool}` has `{role}` and pool `{first_pool}` has `{earlier}`: "
                    "a role lives in one pool",
                    hint="a role without a suffix holds both its `.generate` and its `.train`",
                    against=(("cluster", "pools", first_pool, "roles", first_index),),
                )
