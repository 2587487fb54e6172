"""Keys that are fine alone and not together. Every rule is a function from tables to problems."""

from collections.abc import Iterable, Iterator

from flowrl.compiler.cluster import OTHER_ROLES
from flowrl.compiler.target import Lengths
from flowrl.config.rules.adapters import adapters_fit
from flowrl.config.rules.engines import engines_fit
from flowrl.config.rules.pools import gpus_fit, layouts_fit, machines_suffice, residencies_fit
from flowrl.config.rules.ranks import ranks_fit
from flowrl.config.tables.schema import OptimizerSettings, Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted
from flowrl.config.toml.types import as_toml
from flowrl.errors import RunFileError, nearest

READ_BY = {
    "hold_fraction": ("flat_then_linear",),
    "final_fraction": ("linear", "cosine", "flat_then_linear"),
}
"""The schedules that read a key."""


def contradictions(tables: Tables) -> Iterator[Problem]:
    """Yield every contradiction of a run file whose keys are valid one by one."""
    for rule in RULES:
        yield from rule(tables)


def _warmup(tables: Tables) -> Iterator[Problem]:
    steps = tables.train.steps
    for path, optimizer in _optimizers(tables):
        if optimizer.warmup_steps > steps:
            yield _more((*path, "warmup_steps"), optimizer.warmup_steps, ("train", "steps"), steps)
        if optimizer.start_step >= steps:
            key = (*path, "start_step")
            yield Problem(
                key,
                f"`{dotted(key)}` = {optimizer.start_step} leaves no step that updates: "
                f"`train.steps` = {steps}",
                against=(("train", "steps"),),
            )


def _schedule(tables: Tables) -> Iterator[Problem]:
    """Yield the keys that no schedule reads; a role's inherited keys aren't its own."""
    roles = tables.optimizer.roles.values()
    yield from _inert(("optimizer",), tables.optimizer, OptimizerSettings(), readers=roles)
    for role, settings in tables.optimizer.roles.items():
        yield from _inert(("optimizer", role), settings, tables.optimizer)


def _inert(
    path: KeyPath,
    settings: OptimizerSettings,
    base: OptimizerSettings,
    readers: Iterable[OptimizerSettings] = (),
) -> Iterator[Problem]:
    read_by = [each.schedule for each in (settings, *readers)]
    for key, schedules in READ_BY.items():
        value = getattr(settings, key)
        if value != getattr(base, key) and not set(schedules) & set(read_by):
            yield Problem(
                (*path, key),
                f"`{dotted((*path, key))}` = {value} changes nothing: "
                f"`{dotted((*path, 'schedule'))}` is {as_toml(settings.schedule)}",
                hint=f"leave it out, or choose {' or '.join(map(as_toml, schedules))}",
                against=((*path, "schedule"),),
            )


def _completion_lengths(tables: Tables) -> Iterator[Problem]:
    for role, engines in tables.engines.roles.items():
        path: KeyPath = ("engines", role, "generate")
        least, most = engines.generate.min_tokens, engines.generate.max_tokens
        if least > most:
            yield _more((*path, "min_tokens"), least, (*path, "max_tokens"), most)


def _workload_lengths(tables: Tables) -> Iterator[Problem]:
    for key in ("prompt_tokens", "response_tokens"):
        given = getattr(tables.workload, key)
        try:
            if given is not None:
                Lengths.of(given)
        except RunFileError as error:
            yield Problem(("workload", key), f"`workload.{key}`: {error.problem}", hint=error.hint)


def _more(path: KeyPath, value: int, limit_path: KeyPath, limit: int) -> Problem:
    return Problem(
        path,
        f"`{dotted(path)}` = {value} is more than `{dotted(limit_path)}` = {limit}",
        against=(limit_path,),
    )


def _unknown_roles(tables: Tables) -> Iterator[Problem]:
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


def _shared_roles(tables: Tables) -> Iterator[Problem]:
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
                    "the rule is one pool for a role",
                    hint="a role without a suffix holds both its `.generate` and its `.train`",
                    against=(("cluster", "pools", first_pool, "roles", first_index),),
                )


def _gpus_of_another_ray(tables: Tables) -> Iterator[Problem]:
    cluster = tables.cluster
    if cluster.address is not None and cluster.num_gpus is not None:
        yield Problem(
            ("cluster", "num_gpus"),
            "`cluster.num_gpus` is for a Ray that flowrl starts; the one at "
            f"`cluster.address` = {as_toml(cluster.address)} knows its own",
            hint="leave one of them out",
            against=(("cluster", "address"),),
        )


def _evaluation(tables: Tables) -> Iterator[Problem]:
    evaluation = tables.eval
    if evaluation is None:
        return
    samples = evaluation.samples
    for index, k in enumerate(evaluation.pass_at):
        if k > samples:
            yield _more(("eval", "pass_at", index), k, ("eval", "samples"), samples)
    if samples > 1 and evaluation.temperature == 0:
        yield Problem(
            ("eval", "temperature"),
            f"`eval.temperature` = 0 is greedy: all `eval.samples` = {samples} would be equal",
            hint="`eval.greedy = true` reports the greedy completion beside the samples",
            against=(("eval", "samples"),),
        )
    rewards = list(tables.reward.functions)
    names = ", ".join(rewards) or "none"
    if evaluation.reward is None and len(rewards) != 1:
        yield Problem(
            ("eval",),
            f"[eval] must say which reward to report: [reward] names {names}",
            hint='add `reward = "..."` to [eval]' if rewards else "add one to [reward]",
        )
    if evaluation.reward is not None and evaluation.reward not in rewards:
        yield Problem(
            ("eval", "reward"),
            f"`eval.reward`: no reward `{evaluation.reward}`{nearest(evaluation.reward, rewards)}",
            hint=f"[reward] names {names}",
            against=(("reward",),),
        )


def _rewards_of_two_kinds(tables: Tables) -> Iterator[Problem]:
    for name, table in tables.reward.functions.items():
        others = [kind for kind in ("http", "model") if kind in table]
        if "function" in table and others:
            what = {"http": "a server", "model": "a model"}[others[0]]
            yield Problem(
                ("reward", name, others[0]),
                f"`reward.{name}` names both {what} and a function",
                hint="leave one of them out; two rewards have two names",
                against=(("reward", name, "function"),),
            )


def _reward_model_names(tables: Tables) -> Iterator[Problem]:
    """A reward that a model gives is a role."""
    taken = {"data": "what reads the data", "policy": "the model that an evaluation samples from"}
    for name in tables.reward.models:
        if name in tables.models:
            yield Problem(
                ("reward", name),
                f"`{name}` names a model of the program and a reward that a model gives",
                hint="give one of them another name: each is a role",
                against=(("models", name),),
            )
        elif name in taken:
            yield Problem(
                ("reward", name),
                f"`{name}` can't name a reward that a model gives: it is {taken[name]}",
                hint="give the reward another name, in the program too",
            )


def _optimizers(tables: Tables) -> Iterator[tuple[KeyPath, OptimizerSettings]]:
    yield ("optimizer",), tables.optimizer
    for role, settings in tables.optimizer.roles.items():
        yield ("optimizer", role), settings


RULES = (
    adapters_fit,
    _warmup,
    _schedule,
    _completion_lengths,
    engines_fit,
    _workload_lengths,
    _unknown_roles,
    _shared_roles,
    gpus_fit,
    layouts_fit,
    residencies_fit,
    machines_suffice,
    ranks_fit,
    _gpus_of_another_ray,
    _evaluation,
    _rewards_of_two_kinds,
    _reward_model_names,
)
