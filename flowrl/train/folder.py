"""The folder of a run: its own, and known to be writable before anything costly starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from safetensors import SafetensorError

from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError
from flowrl.ir.plan import Plan

RESULTS = ("metrics.jsonl", "ops.jsonl", "samples.jsonl", "checkpoint*")
"""What a run leaves in its folder, as globs; an empty file is nothing."""

SHOWN = 5
"""The most names of results that are told."""


def open_folder(folder: Path) -> None:
    """Make a run's folder.

    Raises:
        RunFileError: it can't be written to, or it has the results of another run.
    """
    left = [path for glob in RESULTS for path in folder.glob(glob)]
    found = sorted(path.name for path in left if not _is_empty(path))
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise RunFileError(
            f"the run's folder has results already: {', '.join(found[:SHOWN])}{more}",
            where=f"  {folder}",
            hint="move or remove them, or name another folder: `--set train.folder=...`; no run is "
            "continued, but one may start from a checkpoint: `models.<role>.path`",
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def _is_empty(path: Path) -> bool:
    """Whether there is an empty file, and no link to nothing."""
    return path.exists() and not path.is_dir() and not path.stat().st_size


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn failures to write into errors that name the path.

    Raises:
        RunFileError: the disk is full, or the path can't be written to.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunFileError(
            f"can't write: {reason}",
            where=f"  {path}",
            hint="make room, or name another folder: `--set train.folder=...`",
        ) from error


def write_description(run: RunFile, plan: Plan) -> None:
    """Write what runs beside its results: the run file with all that was set, and the plan.

    Relative paths in the former still start at the folder of the run file itself.
    """
    with writing(run.folder):
        (run.folder / "run.toml").write_text(run.as_text(), encoding="utf-8")
        (run.folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
