"""What a run file says of rewards, key against key."""

from collections.abc import Iterator

from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import Problem


def rewards_fit(tables: Tables) -> Iterator[Problem]:
    """Yield rewards of two kinds, and those that models give by names which others have."""
    yield from _of_two_kinds(tables)
    yield from _called_twice(tables)


def _of_two_kinds(tables: Tables) -> Iterator[Problem]:
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


def _called_twice(tables: Tables) -> Iterator[Problem]:
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
