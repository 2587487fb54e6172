"""What a run file says of optimizers, key against key."""

from collections.abc import Iterable, Iterator

from flowrl.config.rules.limits import above
from flowrl.config.tables.schema import OptimizerSettings, Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted
from flowrl.config.toml.types import as_toml

READ_BY = {
    "hold_fraction": ("flat_then_linear",),
    "final_fraction": ("linear", "cosine", "flat_then_linear"),
}
"""The schedules that read a key."""


def optimizers_fit(tables: Tables) -> Iterator[Problem]:
    """Yield steps that a run doesn't have, and keys that no schedule reads."""
    yield from _steps(tables)
    yield from _schedules(tables)


def _steps(tables: Tables) -> Iterator[Problem]:
    steps = tables.train.steps
    for path, optimizer in _optimizers(tables):
        if optimizer.warmup_steps > steps:
            yield above((*path, "warmup_steps"), optimizer.warmup_steps, ("train", "steps"), steps)
        if optimizer.start_step >= steps:
            key = (*path, "start_step")
            yield Problem(
                key,
                f"`{dotted(key)}` = {optimizer.start_step} leaves no step that updates: "
                f"`train.steps` = {steps}",
                against=(("train", "steps"),),
            )


def _schedules(tables: Tables) -> Iterator[Problem]:
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


def _optimizers(tables: Tables) -> Iterator[tuple[KeyPath, OptimizerSettings]]:
    yield ("optimizer",), tables.optimizer
    for role, settings in tables.optimizer.roles.items():
        yield ("optimizer", role), settings
