"""`flowrl profile`: what was measured, beside what was predicted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from flowrl.errors import DataError, RunFileError
from flowrl.report.columns import responses, seconds, table
from flowrl.report.files import writing
from flowrl.train.fit import Fit
from flowrl.train.profile import WARM_UP, profile_run

HINT = "name a file in a folder that exists: `--out profile.json`"


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
    if out.is_dir():
        raise DataError(f"`{out}` can't be written: it is a folder", hint=HINT)
    with writing(out, HINT), TemporaryFile(dir=out.absolute().parent):
        pass  # known before anything is measured
    found = profile_run(file, sets, steps, say)
    with writing(out, HINT):
        found.profile.save(out)
    return "\n".join([*_lines(found), f"{out}: plan by `[workload] profile` or `--profile {out}`"])


def _lines(found: Fit) -> Iterator[str]:
    plan = found.planned
    machines = plan.target.machines
    steps = "step" if found.steps == 1 else "steps"
    yield f"{plan.graph.name} on {machines}: {found.steps} {steps}, after {WARM_UP} to warm up"
    rows = [("work", "on", "predicted", "measured")]
    rows += [(w.kind, w.gpu, seconds(w.predicted), seconds(w.measured)) for w in found.work]
    yield from table(rows, right=(2, 3))
    yield f"a step takes {seconds(found.step)}; {seconds(found.rest)} of it are no model's"
    if found.response is not None:
        yield responses(found.response)
