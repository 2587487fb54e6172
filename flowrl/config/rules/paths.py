"""Texts of a run file that are to be paths, and can be none, or lead where no run can write."""

from collections.abc import Iterator, Mapping
from os.path import lexists
from pathlib import Path
from typing import Any

from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted

FOLDER = ("train", "folder")


def run_folder(given: str | None, file: Path) -> str:
    """Return where a run's results go: `train.folder`, or a folder named after its run file."""
    return given or f"runs/{file.stem}"


def paths_lead(tables: Tables, file: Path) -> Iterator[Problem]:
    """Yield texts that the file system takes for no path, whether anything is there or not.

    What is there is left to who reads it; but a run's folder, which none reads, can't be a file,
    nor lie below one.

    Args:
        tables: of a run file.
        file: the run file; relative paths start in its folder.
    """
    folder = file.parent.absolute()
    for key, given in _given(tables, file):
        try:
            in_the_way = _in_the_way(Path(given), folder) if key == FOLDER else None
            (folder / Path(given).expanduser()).lstat()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            yield Problem(key, f"`{dotted(key)}` can't be looked up: {reason}")
            continue
        if in_the_way:
            yield Problem(key, f"`{dotted(key)}` must name a folder; {in_the_way}")


def _in_the_way(path: Path, folder: Path) -> str | None:
    """Return what is no folder, of a path and those above it; None if it is one or can be made."""
    for given in (path, *path.parents):
        at = folder / given.expanduser()
        if lexists(at) and not at.is_dir():
            return f"`{given}` is {'a file' if at.exists() else 'a link that leads to nothing'}"
    return None


def _given(tables: Tables, file: Path) -> Iterator[tuple[KeyPath, str]]:
    yield ("program", "file"), tables.program.file
    for role, table in tables.models.items():
        yield ("models", role, "path"), table.path
    texts: dict[KeyPath, Any] = {
        FOLDER: run_folder(tables.train.folder, file),
        ("workload", "profile"): tables.workload.profile,
        ("data", "source"): tables.data.get("source"),
        ("eval", "data", "source"): tables.eval and tables.eval.data.get("source"),
    }
    for name, table in tables.data.items():
        texts["data", name, "source"] = table.get("source") if isinstance(table, Mapping) else None
    for name, reward in tables.reward.functions.items():
        texts |= {("reward", name, key): reward.get(key) for key in ("function", "model")}
    yield from ((key, text) for key, text in texts.items() if isinstance(text, str))
