"""Texts of a run file that are to be paths, and can be none, or lead where no run can write."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted

FOLDER = ("train", "folder")


def paths_lead(tables: Tables, folder: Path) -> Iterator[Problem]:
    """Yield texts that the file system takes for no path, whether anything is there or not.

    What is there is left to who reads it; but a run's folder, which none reads, can't be a file.

    Args:
        tables: of a run file.
        folder: where its relative paths start.
    """
    for key, given in _given(tables):
        try:
            path = folder / Path(given).expanduser()
            path.lstat()
            in_the_way = key == FOLDER and path.is_file()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            yield Problem(key, f"`{dotted(key)}` can't be looked up: {reason}")
        else:
            if in_the_way:
                yield Problem(key, f"`{dotted(key)}` must name a folder; `{given}` is a file")


def _given(tables: Tables) -> Iterator[tuple[KeyPath, str]]:
    yield ("program", "file"), tables.program.file
    for role, table in tables.models.items():
        yield ("models", role, "path"), table.path
    texts: dict[KeyPath, Any] = {
        FOLDER: tables.train.folder,
        ("workload", "profile"): tables.workload.profile,
        ("data", "source"): tables.data.get("source"),
        ("eval", "data", "source"): tables.eval and tables.eval.data.get("source"),
    }
    for name, table in tables.data.items():
        texts["data", name, "source"] = table.get("source") if isinstance(table, Mapping) else None
    for name, reward in tables.reward.functions.items():
        texts |= {("reward", name, key): reward.get(key) for key in ("function", "model")}
    yield from ((key, text) for key, text in texts.items() if isinstance(text, str))
