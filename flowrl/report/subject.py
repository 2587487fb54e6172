"""What a command is about: a program by name or file, or a run file with its program."""

from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.programs import load_program
from flowrl.config.run_file import load_run_file
from flowrl.config.tables.hyperparameters import check_hyperparameters
from flowrl.config.toml.source import Assignment, Source
from flowrl.config.traced import trace_run
from flowrl.ir.program import Program
from flowrl.stages import Traced, trace
from flowrl.user_file import locating


def is_run_file(given: str) -> bool:
    """Return whether a command's argument names a run file rather than a program."""
    return given.endswith(".toml")


def traced_of(given: str, sets: Sequence[str]) -> Traced:
    """Trace a program, or that of a run file.

    Raises:
        FlowrlError: it can't be loaded, a set is wrong, or the program breaks a rule.
    """
    return subject(given, sets)[0]


def subject(given: str, sets: Sequence[str]) -> tuple[Traced, Cluster]:
    """Return the traced program and the pools that it is compiled for."""
    if is_run_file(given):
        run = load_run_file(given, sets)
        traced = trace_run(run)
        return traced, cluster_of(run, simplify(traced.graph, Cluster()))
    program = load_program(given)
    with locating(Path(program.loc.file)):
        return trace(program, **hyperparameters(program, sets)), Cluster()


def hyperparameters(program: Program, sets: Sequence[str]) -> dict[str, Any]:
    """Return the hyperparameters that `name=value` texts set.

    Raises:
        RunFileError: a text isn't of that form, or a value is of another type.
    """
    written = [Assignment.parse(text) for text in sets]
    given: dict[str, Any] = {}
    for each in written:
        each.apply(given)
    known = program.defaults()
    if not given.keys() <= known.keys() or any(
        name not in given for name, default in known.items() if default is Parameter.empty
    ):
        return given  # tracing says which are missing or unknown
    placed = [Assignment(each.text, ("program", *each.path), each.value) for each in written]
    source = Source(Path(program.loc.file), "", tuple(placed))
    return check_hyperparameters(given, program.signature, source, program.name)
