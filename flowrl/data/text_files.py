"""JSONL and CSV files, line by line, so that a bad line is named and the rest survives."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowrl.data.record import Found, RowError
from flowrl.errors import DataError


def jsonl_rows(path: Path, name: str) -> Found:
    """Yield the object on each line; blank lines are no rows."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                where = f"{name}:{number}"
                yield where, _json_object(line, where)


def _json_object(line: bytes, where: str) -> dict[str, Any] | RowError:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = f"the line is not UTF-8: byte 0x{line[error.start]:02x} at {error.start + 1}"
        return RowError("bad UTF-8", problem, where=where)
    except json.JSONDecodeError as error:
        problem = f"the line is not JSON: {error.msg} at character {error.colno}"
        return RowError("bad JSON", problem, where=where)
    except (ValueError, RecursionError) as error:  # of a number too long, or too many brackets
        return RowError("bad JSON", f"the line can't be read: {error}", where=where)
    if not isinstance(value, dict):
        problem = f"expected an object with a key a column; got {type(value).__name__}"
        return RowError("wrong type", problem, where=where)
    return value


def csv_rows(path: Path, name: str) -> Found:
    """Yield the fields of each row by the names in the first line: text, or None if empty."""
    with path.open("rb") as file:
        lines = (line.decode("utf-8", "surrogateescape") for line in file)
        reader = csv.reader(lines, strict=True)
        header: list[str] | None = None
        for line, fields in _records(reader):
            where = f"{name}:{line}"
            if isinstance(fields, csv.Error):
                error = RowError("bad CSV", f"the row is not CSV: {fields}", where=where)
                if header is None:
                    raise error
                yield where, error
            elif header is None:
                header = [fields[0].removeprefix("\ufeff"), *fields[1:]]
                if len(set(header)) < len(header):
                    raise DataError(f"two columns have one name: {header}", where=where)
            else:
                yield where, _named(header, fields, where)


def _records(reader: Any) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield the first line and the fields of each row that is not blank."""
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fields = error
        if fields:
            yield line, fields


def _named(header: list[str], fields: list[str], where: str) -> dict[str, str | None] | RowError:
    if len(fields) != len(header):
        problem = f"expected {len(header)} fields ({', '.join(header)}); got {len(fields)}"
        return RowError("bad CSV", problem, where=where)
    for column, field in zip(header, fields, strict=True):
        if not field.isascii() and any("\udc80" <= letter <= "\udcff" for letter in field):
            return RowError("bad UTF-8", f"column `{column}` is not UTF-8", where=where)
    return {column: field or None for column, field in zip(header, fields, strict=True)}
