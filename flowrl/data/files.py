"""The files of rows that a path or a glob names."""

import glob
import re
from pathlib import Path

from flowrl.data.record import Found
from flowrl.data.tables import arrow_rows, parquet_rows
from flowrl.data.text_files import csv_rows, jsonl_rows
from flowrl.errors import DataError, nearest

FILES = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
    ".arrow": arrow_rows,
}
"""What reads a file, by its suffix."""
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+)(:(?P<split>[\w.\[\]:%+-]+))?")


def names_files(source: str) -> bool:
    """Whether a source is a path or a glob of files, rather than a folder or a name on the hub."""
    is_glob = glob.has_magic(source) and not HUB_NAME.fullmatch(source)
    return Path(source).suffix in FILES or is_glob


def files_of(name: str, folder: Path) -> list[str]:
    """Return the files that a path or a glob names, which starts from a folder if relative."""
    pattern = str(Path(name).expanduser())
    if (folder / pattern).is_file():
        return [pattern]
    return sorted(glob.glob(pattern, root_dir=folder, recursive=True))


def file_rows(name: str, folder: Path) -> Found:
    """Return the rows of all files that a path or a glob names.

    Raises:
        DataError: there is no such file, one of another kind, or one that can't be read.
    """
    names = files_of(name, folder)
    if not names:
        path = folder / Path(name).expanduser()
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in FILES and p.is_file())
        close = "" if glob.has_magic(name) else nearest(path.name, near)
        raise DataError(
            f"there is no file {path}{close}",
            where=name,
            hint=f"relative paths start at {folder}",
        )
    for each in names:
        if Path(each).suffix not in FILES:
            raise DataError(f"expected {', '.join(FILES)} files; got {each}", where=name)
        if (folder / each).is_dir():
            raise DataError(f"expected a file; `{each}` is a folder", where=name)
    return _rows(names, folder)


def _rows(names: list[str], folder: Path) -> Found:
    for each in names:
        try:
            yield from FILES[Path(each).suffix](folder / each, each)
        except OSError as error:
            raise DataError(
                f"can't read the file: {error.strerror or error}", where=each
            ) from error
