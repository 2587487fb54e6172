"""Why `sample_until` found too few groups: how often the samples of one have the same reward."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node
from flowrl.runtime.graph import machine
from flowrl.runtime.graph.machine import Machine

MOST_LEVELS = 3
"""Rewards that are told, those that most groups have."""


def shortfall(
    it: Machine, node: Node, problem: str, scored: Mapping[str, list[Any]]
) -> EngineError:
    """Return the error of a batch that isn't full.

    Args:
        it: who has the rewards.
        node: the `sample_until`.
        problem: how many groups there are.
        scored: f32[prompt, sample] of each round, by the reward's name.
    """
    joined = {name: it.call(machine.joined, *rounds) for name, rounds in scored.items()}
    said = [it.words(partial(levels, name), rewards) for name, rewards in joined.items()]
    hint = "draw more rounds or prompts, keep more, or go on with fewer: shortfall='accept'"
    if any(said):
        why = "if all are right the task is too easy for the policy, if all are wrong too hard, or"
        hint = f"{why} the reward misreads them: take other prompts; or {hint}"
    problem = "; ".join(filter(None, [f"{node.op.name}: {problem}", *said]))
    return EngineError(problem, where=it.place(node), hint=hint)


def levels(name: str, rewards: Ragged) -> str:
    """Return in words how many groups have the same reward at all samples, and which.

    Args:
        name: the reward's.
        rewards: f32[prompt, sample].
    """
    groups = [set(row.tolist()) for row in rewards.rows()]
    if not groups:
        return ""
    found = Counter(next(iter(group)) for group in groups if len(group) == 1)
    extremes = {}
    if len(seen := set().union(*groups)) > 1:
        extremes = {max(seen): " (the highest)", min(seen): " (the lowest)"}

    def share(count: int) -> str:
        return f"{100 * count / len(groups):.3g}%"

    told = [
        f"{level:g}{extremes.get(level, '')} in {share(count)}"
        for level, count in found.most_common(MOST_LEVELS)
    ]
    more = [f"and {len(found) - len(told)} others"] if len(found) > len(told) else []
    each = f": {', '.join(told + more)}" if told else ""
    return f"all samples have the same `{name}` in {share(found.total())} of the groups{each}"
