"""A number above the one that limits it."""

from flowrl.config.toml.structure import KeyPath, Problem, dotted


def above(path: KeyPath, value: int, limit_path: KeyPath, limit: int) -> Problem:
    """Return the problem of a number that is more than another key lets it be."""
    return Problem(
        path,
        f"`{dotted(path)}` = {value} is more than `{dotted(limit_path)}` = {limit}",
        against=(limit_path,),
    )
