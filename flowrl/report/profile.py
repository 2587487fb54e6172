"""`flowrl profile`: what was measured, beside what was predicted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flowrl.errors import DataError, RunFileError
from flowrl.report.columns import seconds, table
from flowrl.train.profile import WARM_UP, Profiled, profile_run


def profile_text(
    file: str, sets: Sequence[str], steps: int, out: Path, say: Callable[[str], None]
) -> str:
    """Run some steps of a run file, write the profile that fits them, and return what it says.

    Args:
        file: the run file.
        sets: `key=value`, laid over it.
        steps: to measure.
        out: the profile's file.
        say: is told what was opened.

    Raises:
        FlowrlError: the run file or its program is wrong, a step failed, or `out` can't be written.
    """
    if steps < 1:
        raise RunFileError(f"`--steps {steps}` must be above 0", hint="measure 3 or more")
    if not out.absolute().parent.is_dir():
        hint = "name a file in a folder that exists: `--out profile.json`"
        raise DataError(f"`{out}` can't be written: its folder isn't there", hint=hint)
    found = profile_run(file, sets, steps, say)
    found.profile.save(out)
    return "\n".join([*_lines(found), f"{out}: plan by `[workload] profile` or `--profile {out}`"])


def _lines(found: Profiled) -> Iterator[str]:
    plan = found.planned
    machines = plan.target.machines
    steps = "step" if found.steps == 1 else "steps"
    yield f"{plan.graph.name} on {machines}: {found.steps} {steps}, after {WARM_UP} to warm up"
    rows = [("phase", "predicted", "measured")]
    rows += [(p.name, seconds(p.predicted), seconds(p.measured)) for p in found.phases]
    yield from table(rows, right=(1, 2))
    yield f"a step takes {seconds(found.step)}; {seconds(found.rest)} of it are no model's"
    if found.response is not None:
        yield (
            f"responses have {found.response:.1f} tokens on average: "
            f"`[workload] response_tokens` is what plans go by"
        )
