"""A row as it was read, and the error that names it."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from flowrl.errors import DataError, nearest

SKIP_HINT = 'correct the row, or set `on_bad_row = "skip"` to leave such rows out'
READER_HINT = f"a reward reads `prompts`, `completions` and columns by name; {SKIP_HINT}"
KEY_HINT = f"name a column that the rows have, as `prompt_key` does; {SKIP_HINT}"


class RowError(DataError):
    """One row that cannot be used; the run file may say to skip it.

    Args:
        reason: a word or two that rows skipped for the same reason share.
        problem: what was expected and what came.
        where: `file:row`.
        hint: what to do.
    """

    def __init__(self, reason: str, problem: str, *, where: str, hint: str = SKIP_HINT) -> None:
        super().__init__(problem, where=where, hint=hint)
        self.reason = reason


@attrs.frozen
class Record:
    """A row as it was read.

    Attributes:
        id: its number in the source, from 0.
        where: `file:row`, from 1; the line in text files.
        columns: its values by column.
    """

    id: int
    where: str
    columns: Mapping[str, Any]

    def value(self, column: str, reader: str = "") -> Any:
        """Return the value in `column`.

        Args:
            column: its name.
            reader: what needs it, for the error.

        Raises:
            RowError: there is none.
        """
        value = self.columns.get(column)
        if value is not None:
            return value
        if column in self.columns:
            problem, hint = f"column `{column}` has no value", SKIP_HINT
        else:
            found = ", ".join(f"`{name}`" for name in self.columns) or "no columns"
            close = nearest(column, self.columns)
            problem = f"column `{column}` is missing{close}; the row has {found}"
            hint = READER_HINT if reader else KEY_HINT
        read = f"; {reader} needs it" if reader else ""
        raise RowError("missing column", problem + read, where=self.where, hint=hint)

    def text(self, column: str) -> str:
        """Return the text in `column`, which must not be blank.

        Raises:
            RowError: there is none, or something else.
        """
        value = self.value(column)
        if not isinstance(value, str):
            problem = f"column `{column}` must be text; got {type(value).__name__} {value!r:.60}"
            raise RowError("wrong type", problem, where=self.where)
        if not value.strip():
            raise RowError(f"empty {column}", f"column `{column}` is blank", where=self.where)
        return value


Found = Iterator[tuple[str, Mapping[str, Any] | RowError]]
"""What a source yields: `file:row`, and the columns or what is wrong with them."""
