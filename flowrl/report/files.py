"""Files that commands read and write: what fails there is told with the file's name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowrl.errors import DataError


@contextmanager
def reading(file: Path, hint: str) -> Iterator[None]:
    """Turn failures to read a file into errors that name it.

    Raises:
        DataError: it isn't there, or has not what it should.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"`{file}` can't be read: {reason}", hint=hint) from error


@contextmanager
def writing(file: Path, hint: str) -> Iterator[None]:
    """Turn failures to write a file into errors that name it.

    Raises:
        DataError: it can't be written.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"`{file}` can't be written: {error.strerror}", hint=hint) from error
