"""What a run file says of the lengths that a plan is made for."""

from collections.abc import Iterator

from flowrl.compiler.target import Lengths
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import Problem
from flowrl.errors import RunFileError


def workload_fits(tables: Tables) -> Iterator[Problem]:
    """Yield lengths that are none."""
    for key in ("prompt_tokens", "response_tokens"):
        given = getattr(tables.workload, key)
        try:
            if given is not None:
                Lengths.of(given)
        except RunFileError as error:
            yield Problem(("workload", key), f"`workload.{key}`: {error.problem}", hint=error.hint)
