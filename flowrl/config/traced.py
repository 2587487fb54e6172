"""From a run file to the graph of its program."""

from typing import Any

import attrs

from flowrl.config.programs import load_program
from flowrl.config.run_file import RunFile
from flowrl.errors import ProgramError, RunFileError
from flowrl.ir.program import Program
from flowrl.ops.correction import corrected
from flowrl.ops.model import PLAIN
from flowrl.stages import Traced, trace
from flowrl.user_file import locating

POLICY = "policy"
"""What `programs/evaluate.py` calls its model."""


def trace_run(run: RunFile) -> Traced:
    """Trace the program of a run file, with its hyperparameters and its sampling.

    Raises:
        FlowrlError: there is no such program, a hyperparameter is wrong, or the program is.
    """
    try:
        program = load_program(run.program_file, run.program.name)
    except ProgramError as error:
        if run.program.name is None:
            raise
        raise error.told(where=error.where, made=[run.where("program.name")]) from error
    hyperparameters = run.hyperparameters(program.name, program.signature)
    program = _corrected(program, run)
    with locating(run.program_file):
        return trace(program, _sampling(run), run.reward.models, **hyperparameters)


def trace_evaluation(run: RunFile) -> Traced:
    """Trace `programs/evaluate.py` as the `[eval]` of a run file, which has one, sets it."""
    table = run.eval
    assert table is not None, "the run file has [eval]"
    reward = table.reward or next(iter(run.reward.functions))
    names = ("samples", "temperature", "greedy", "pass_at")
    settings = {name: getattr(table, name) for name in names} | {"reward": reward}
    judges = [reward] if reward in run.reward.models else []
    return trace(load_program("evaluate"), {}, judges, **settings)


def _corrected(program: Program, run: RunFile) -> Program:
    """Return the program with the weights of `[correction]`, if there is that table."""
    if run.correction is None:
        return program
    try:
        return corrected(program, **attrs.asdict(run.correction))
    except ProgramError as error:
        where = run.where("correction")
        raise RunFileError(error.problem, where=where, hint=error.hint) from None


def _sampling(run: RunFile) -> dict[str, dict[str, Any]]:
    """Return what the run file says of the distribution that each role samples from."""
    tables = {role: table.generate for role, table in run.engines.roles.items()}
    given = {role: {n: getattr(t, n) for n in PLAIN} for role, t in tables.items()}
    return {role: {n: x for n, x in of.items() if x is not None} for role, of in given.items()}
