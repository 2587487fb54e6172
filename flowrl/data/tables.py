"""Parquet and Arrow files, folders saved by `datasets`, and data sets on the hub."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowrl.data.record import Found
from flowrl.errors import DataError, nearest

SAVED = (("dataset_dict.json",), ("dataset_info.json", "state.json"))
"""What `save_to_disk` writes beside rows: of several splits, and of one table."""


def parquet_rows(path: Path, name: str) -> Found:
    """Yield the rows of a Parquet file."""
    return _streamed("parquet", path, name)


def arrow_rows(path: Path, name: str) -> Found:
    """Yield the rows of an Arrow file, of the file or the stream format."""
    return _streamed("arrow", path, name)


def _streamed(builder: str, path: Path, name: str) -> Found:
    """Yield rows without a copy in the user's cache."""
    datasets = _library()
    with _named_errors(name, builder):
        rows = datasets.load_dataset(builder, data_files=str(path), split="train", streaming=True)
        yield from _numbered(rows, name)


def saved_rows(path: Path, name: str, split: str | None) -> Found:
    """Return the rows of a folder written by `save_to_disk`.

    Raises:
        DataError: the folder lacks what that writes.
    """
    if not any(all((path / file).is_file() for file in files) for files in SAVED):
        raise DataError(
            f"expected a folder saved by `datasets`, with {', or '.join(map(' and '.join, SAVED))}",
            where=name,
            hint=f"name files by a path or glob, such as `{name.rstrip('/')}/*.parquet`",
        )
    return _saved(path, name, split)


def _saved(path: Path, name: str, split: str | None) -> Found:
    datasets = _library()
    with _named_errors(name, "a folder saved by `datasets`"):
        rows = datasets.load_from_disk(str(path))
    yield from _numbered(_one_split(rows, split, name), name)


def hub_rows(name: str, split: str | None, options: Mapping[str, Any]) -> Found:
    """Yield the rows of a data set on the hub, from the user's cache if it is there."""
    datasets = _library()
    with _named_errors(name, "a data set on the hub"):
        rows = datasets.load_dataset(name, split=split, **options)
    yield from _numbered(_one_split(rows, split, name), f"{name}:{split}" if split else name)


def _library() -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets


def _numbered(rows: Iterable[Mapping[str, Any]], name: str) -> Found:
    for number, row in enumerate(rows, start=1):
        yield f"{name}:{number}", dict(row)


def _one_split(rows: Any, split: str | None, name: str) -> Any:
    """Return the table of `split`, or the only one."""
    splits = list(rows) if isinstance(rows, dict) else []
    if not splits:
        return rows
    if split is None and len(splits) == 1:
        return rows[splits[0]]
    if split in splits:
        return rows[split]
    problem = f"no split `{split}`{nearest(split, splits)}" if split else "several splits"
    raise DataError(problem, where=name, hint=f"set `split` to one of {', '.join(splits)}")


@contextmanager
def _named_errors(name: str, what: str) -> Iterator[None]:
    """Turn the errors of the reading libraries into one that names the source."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except (OSError, ValueError, TypeError, DatasetsError) as error:
        text = str(error).strip() or type(error).__name__
        raise DataError(f"cannot be read as {what}: {text}", where=name) from error
