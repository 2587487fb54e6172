"""What would make a step fit that doesn't: each tried by the same search."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.target import Settings, Target

MOST_TIMES = 64
"""How many times the nodes there are may be tried."""


@attrs.frozen
class Fix:
    """A change to what the user gave.

    Attributes:
        text: what to do.
        target: what it makes of the target.
        constraints: what it makes of the constraints.
    """

    text: str
    target: Target
    constraints: Constraints


def small_fixes(target: Target, constraints: Constraints) -> Iterator[Fix]:
    """Yield fixes on the same GPUs."""
    free = Constraints(axes=constraints.axes, most_gpus=constraints.most_gpus)
    if constraints != free:
        yield Fix("leave pools, layouts and residency to the search", target, free)
        some = attrs.evolve(constraints, residencies={})
        if some not in (constraints, free):
            yield Fix("leave residency to the search", target, some)
    for changes in _changes(target):
        for text, change in changes:
            yield Fix(text, _with(target, change), constraints)


def all_small_fixes(target: Target, constraints: Constraints) -> Fix:
    """Return the strongest fix of each kind at once."""
    strongest = [changes[-1] for changes in _changes(target) if changes]
    for _, change in strongest:
        target = _with(target, change)
    return Fix("; ".join(text for text, _ in strongest), target, constraints)


def more_gpus(target: Target, constraints: Constraints) -> Iterator[Fix]:
    """Yield two, four, eight, ... times the nodes."""
    times = 2
    while times <= MOST_TIMES:
        machines = Machines(tuple(n for n in target.machines.nodes for _ in range(times)))
        most = constraints.most_gpus and constraints.most_gpus * times
        yield Fix(
            f"take {machines.size} GPUs ({machines})",
            attrs.evolve(target, machines=machines),
            attrs.evolve(constraints, most_gpus=most, gpus={}),
        )
        times *= 2


Change = tuple[str, Callable[[Settings], Settings]]


def _changes(target: Target) -> tuple[list[Change], ...]:
    return (
        _checkpointing(target),
        _offloads(target),
        _microbatches(target),
        _caches(target),
        _shares(target),
        _reserved_caches(target),
    )


def _checkpointing(target: Target) -> list[Change]:
    if all(settings.checkpointing for settings in _settings(target)):
        return []
    return [("checkpoint activations", lambda s: attrs.evolve(s, checkpointing=True))]


def _offloads(target: Target) -> list[Change]:
    if all(settings.offload != "none" for settings in _settings(target)):
        return []

    def change(settings: Settings) -> Settings:
        known = settings.offload != "none"
        return settings if known else attrs.evolve(settings, offload="optimizer")

    return [("offload the optimizer", change)]


def _microbatches(target: Target) -> list[Change]:
    """Return microbatches of a half, a quarter, an eighth, but of a whole sequence at least."""
    workload = target.workload
    longest = workload.prompt_tokens.maximum + workload.response_tokens.maximum
    now = max(settings.microbatch_tokens for settings in _settings(target))
    return [
        (f"microbatches of at most {tokens} tokens", _at_most("microbatch_tokens", tokens))
        for tokens in (now // 2, now // 4, now // 8)
        if tokens >= longest
    ]


def _caches(target: Target) -> list[Change]:
    """Return fewer sequences at once, where an engine's cache is as large as they need."""
    return [
        (f"at most {count} sequences at once in an engine", _at_most("sequences", count))
        for count in (256, 64, 16)
        if any(
            s.reserve is None and (s.sequences is None or s.sequences > count)
            for s in _settings(target)
        )
    ]


def _shares(target: Target) -> list[Change]:
    """Return lower shares of a GPU for engines that reserve one."""
    now = [s.reserve.share for s in _settings(target) if s.reserve and not s.reserve.cache_bytes]
    return [
        (f"lower `gpu_memory_utilization` to {share}", _reserving(share=share))
        for share in (0.3, 0.2, 0.1)
        if max(now, default=0) > share
    ]


def _reserved_caches(target: Target) -> list[Change]:
    """Return smaller caches for engines that reserve theirs by its size."""
    now = [s.reserve.cache_bytes or 0 for s in _settings(target) if s.reserve]
    return [
        (f"lower `kv_cache_gib` to {gib}", _reserving(cache_bytes=gib * 2**30))
        for gib in (16, 4, 1)
        if max(now, default=0) > gib * 2**30
    ]


def _reserving(**most: float) -> Callable[[Settings], Settings]:
    """Return a change to reserves: at most so much of each, where it is given."""

    def change(settings: Settings) -> Settings:
        if settings.reserve is None:
            return settings
        now = {name: getattr(settings.reserve, name) for name in most}
        least: dict[str, Any] = {name: x and min(x, most[name]) for name, x in now.items()}
        return attrs.evolve(settings, reserve=attrs.evolve(settings.reserve, **least))

    return change


def _at_most(field: str, most: int) -> Callable[[Settings], Settings]:
    def change(settings: Settings) -> Settings:
        now = getattr(settings, field)
        least: dict[str, Any] = {field: most if now is None else min(now, most)}
        return attrs.evolve(settings, **least)

    return change


def _settings(target: Target) -> list[Settings]:
    return [target.workload.settings(role) for role in target.shapes]


def _with(target: Target, change: Callable[[Settings], Settings]) -> Target:
    workload = target.workload
    roles = {role: change(settings) for role, settings in workload.roles.items()}
    changed = attrs.evolve(workload, roles=roles, default=change(workload.default))
    return attrs.evolve(target, workload=changed)
