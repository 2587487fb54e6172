"""The command line: look at programs, check them, compare them, run them."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from flowrl.errors import FlowrlError, RunFileError
from flowrl.stdout import tell

Stage = Literal["traced", "simplify", "bases", "losses", "place", "layout", "transfer", "plan"]
Format = Literal["text", "mermaid", "dot", "svg"]
Sets = Annotated[tuple[str, ...], Parameter(name="--set", negative="", consume_multiple=False)]

app = App(
    name="flowrl",
    help="Reinforcement learning of language models as typed dataflow graphs.",
    version_flags=(),
    suppress_keyboard_interrupt=False,
)


@app.command
def show(
    program: str, /, *, stage: Stage = "traced", format: Format = "text", set: Sets = ()
) -> None:
    """Print the graph of a program.

    Args:
        program: A program (`grpo`, `path.py` or `path.py:name`) or a run file.
        stage: The pass to stop after; `plan` is what the runtime gets.
        format: `text` in the grammar of docs/ir.md (the plan as JSON), or a picture.
        set: `name=value`, a hyperparameter; for a run file any key, as in `train.steps=100`.
    """
    from flowrl.report.show import picture

    tell(picture(program, stage, format, set))


@app.command
def check(program: str, /, *, set: Sets = ()) -> None:
    """Check a program, or a run file with its program; nothing is loaded.

    Args:
        program: A program (`grpo`, `path.py` or `path.py:name`) or a run file.
        set: `name=value`, a hyperparameter; for a run file any key, as in `train.steps=100`.
    """
    from flowrl.report.check import checked

    tell(checked(program, set))


@app.command
def diff(a: str, b: str, /, *, set: Sets = ()) -> None:
    """Print what differs between two programs, op by op.

    Args:
        a: A program or a run file.
        b: Another, or the same.
        set: `name=value`, a hyperparameter of `b`; for a run file any key.
    """
    from flowrl.ir.diff import diff as difference
    from flowrl.report.subject import traced_of

    tell(difference(traced_of(a, ()).graph, traced_of(b, set).graph))


@app.command
def plan(
    file: Path | None = None,
    /,
    *,
    cluster: str | None = None,
    lengths: str | None = None,
    profile: Path | None = None,
    diff: tuple[Path, Path] | None = None,
    measured: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    set: Sets = (),
) -> None:
    """Print where a run file's program would run, what it would take, and what holds it up.

    Args:
        file: The run file.
        cluster: The GPUs, as in `8xH100` or `2x8xH100 + 8xA100-80G`, instead of the run file's.
        lengths: Tokens of prompts and responses: `256:600`, or `256:600/2048` with a maximum.
        profile: Speeds that `flowrl profile` or a run measured (its folder), instead of the run
            file's.
        diff: Two run files: print in which lines their plans differ.
        measured: A run's folder: print what its ops took, beside what was predicted.
        json: Print all of it as JSON, with the lowered graph.
        set: `key=value`, laid over the run file, as in `train.prompts_per_step=256`.
    """
    from flowrl.report.options import settings
    from flowrl.report.plan import plan_difference, plan_json, plan_text

    sets = settings(cluster, lengths, profile, set)
    if diff is not None and (file is not None or json):
        hint = "`flowrl plan --diff A B` compares two run files, as text"
        raise RunFileError("`--diff` takes neither another run file nor `--json`", hint=hint)
    if measured is not None and (file or diff or json or sets):
        hint = "`flowrl plan --measured runs/x` reads what a run wrote"
        raise RunFileError("`--measured` takes a run's folder and nothing else", hint=hint)
    if measured is not None:
        from flowrl.report.measured import measured_text

        tell(measured_text(measured))
    elif diff is not None:
        tell(plan_difference(str(diff[0]), str(diff[1]), sets))
    elif file is not None:
        tell((plan_json if json else plan_text)(str(file), sets))
    else:
        hint = "`flowrl plan FILE`, `flowrl plan --diff A B`, or `flowrl plan --measured FOLDER`"
        raise RunFileError("expected a run file to plan", hint=hint)


@app.command
def simulate(
    file: Path,
    /,
    *,
    cluster: str | None = None,
    lengths: str | None = None,
    profile: Path | None = None,
    steps: int = 20,
    seed: int = 0,
    trace: Path | None = None,
    failures: float | None = None,
    restart: float = 600,
    set: Sets = (),
) -> None:
    """Run steps of a run file's plan on simulated workers, by the controller that real runs have.

    Args:
        file: The run file.
        cluster: The GPUs, as in `8xH100` or `2x8xH100 + 8xA100-80G`, instead of the run file's.
        lengths: Tokens of prompts and responses: `256:600`, or `256:600/2048` with a maximum.
        profile: Speeds that `flowrl profile` or a run measured (its folder), instead of the run
            file's.
        steps: How many.
        seed: Of lengths, rounds, branches and failures.
        trace: A file for what each worker did when, for https://ui.perfetto.dev.
        failures: Hours between failures of one GPU (50,000 on H100s: arXiv:2407.21783, table 5).
        restart: Seconds from a failure until the step is run again.
        set: `key=value`, laid over the run file, as in `train.prompts_per_step=256`.
    """
    from flowrl.report.options import settings
    from flowrl.report.simulation import simulation_text

    sets = settings(cluster, lengths, profile, set)
    tell(simulation_text(str(file), sets, steps, seed, trace, failures, restart))


@app.command
def profile(
    file: Path,
    /,
    *,
    cluster: str | None = None,
    lengths: str | None = None,
    steps: int = 3,
    out: Path = Path("profile.json"),
    set: Sets = (),
) -> None:
    """Run some steps of a run file, and write the speeds that it reaches, for plans.

    Args:
        file: The run file.
        cluster: What it runs on, as in `1xH200` or `1xCPU`, instead of the run file's `machines`.
        lengths: Tokens of prompts and responses: `256:600`, or `256:600/2048` with a maximum.
        steps: How many to measure, after one to warm up.
        out: The profile's file.
        set: `key=value`, laid over the run file, as in `train.prompts_per_step=256`.
    """
    from flowrl.report.options import settings
    from flowrl.report.profile import profile_text

    sets = settings(cluster, lengths, sets=set)
    tell(profile_text(str(file), sets, steps, out, tell))


@app.command
def run(file: Path, /, *, set: Sets = ()) -> None:
    """Train as a run file says.

    Args:
        file: The run file.
        set: `key=value`, laid over the run file, as in `train.steps=100`.
    """
    from flowrl.report.measured import measured_text
    from flowrl.train.op_log import OPS
    from flowrl.train.run import run_file

    folder = run_file(str(file), set).parent
    if (folder / OPS).exists():
        tell(measured_text(folder))


@app.command
def eval(file: Path, checkpoint: Path, /, *, set: Sets = ()) -> None:
    """Evaluate a checkpoint on the held-out prompts of a run file.

    Args:
        file: The run file.
        checkpoint: The checkpoint's folder.
        set: `key=value`, laid over the run file, as in `eval.samples=8`.
    """
    from flowrl.train.evaluate import eval_checkpoint

    eval_checkpoint(str(file), str(checkpoint), set)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    0: done. 1: an error that is the user's to fix, printed without traceback. 2: the command
    line is wrong. 130: interrupted.
    """
    # OpenMP threads that spin while they wait make torch ten times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command, bound, _ = app.parse_args(given, exit_on_error=False, print_error=True)
    except CycloptsError:
        return 2
    return _guarded(lambda: command(*bound.args, **bound.kwargs))


def _guarded(command: Callable[[], object]) -> int:
    try:
        command()
    except FlowrlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SystemExit as left:  # a user's code; its 0 would say that the command is done
        print(f"error: the program left by sys.exit({left.code!r})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
