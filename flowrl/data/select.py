"""Which of a source's rows a run may see: no repeats, no excluded contents, one slice."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flowrl.data.record import Record, RowError
from flowrl.errors import DataError

DUPLICATE, EXCLUDED = "duplicate", "excluded"


def content(value: Any) -> str:
    """Return what makes two values the same content: letters alike, whatever their case."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text.casefold()


def contents(records: Iterable[Record | RowError], key: str) -> frozenset[str]:
    """Return all contents of a column.

    Raises:
        RowError: a row cannot be read, so what it holds is not known.
    """
    found = set()
    for record in records:
        if isinstance(record, RowError):
            raise record
        found.add(content(record.value(key)))
    return frozenset(found)


def distinct(
    records: Iterable[Record | RowError], key: str, excluded: frozenset[str]
) -> Iterator[Record | RowError]:
    """Replace each row that repeats an earlier one, or is excluded, by an error that says so."""
    seen: dict[str, str] = {}
    for record in records:
        yield record if isinstance(record, RowError) else _checked(record, key, excluded, seen)


def _checked(
    record: Record, key: str, excluded: frozenset[str], seen: dict[str, str]
) -> Record | RowError:
    try:
        found = content(record.value(key))
    except RowError as error:
        return error
    if found in excluded:
        return RowError(EXCLUDED, f"`{key}` is in `exclude`", where=record.where)
    first = seen.setdefault(found, record.where)
    if first != record.where:
        return RowError(DUPLICATE, f"`{key}` repeats {first}", where=record.where)
    return record


def carve(
    records: Iterable[Record | RowError], skip_rows: int, limit: int | None
) -> Iterator[Record | RowError]:
    """Yield `limit` rows after the first `skip_rows`, and no more than is needed for these.

    Rows that cannot be read count, so that slices of one source never overlap, whatever is
    done with such rows. Duplicates and excluded rows do not count.

    Raises:
        DataError: there are no rows after the first `skip_rows`.
    """
    end = None if limit is None else skip_rows + limit
    position, where = 0, ""
    for record in records:
        where = record.where
        if isinstance(record, RowError) and record.reason in (DUPLICATE, EXCLUDED):
            yield record
            continue
        if position >= skip_rows:
            yield record
        position += 1
        if position == end:
            return
    if 0 < position <= skip_rows:
        rows = "1 row" if position == 1 else f"{position} rows"
        raise DataError(
            f"`skip_rows` = {skip_rows} leaves nothing: the source has {rows} to draw",
            where=f"the last is {where}",
            hint="lower `skip_rows`",
        )
