"""The text of a run file: its tables, and where each key stands."""

import linecache
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.toml.structure import NO_NULL, NULLS, KeyPath, Problem, Table, dotted
from flowrl.errors import Location, RunFileError

SPELT = {
    **dict.fromkeys(NULLS, f"{NO_NULL}: leave the key out for its default"),
    "True": "write `true`",
    "False": "write `false`",
}
"""What to write for a word of another language."""


@attrs.frozen
class Assignment:
    """One `--set a.b=value`: it replaces or adds one key."""

    text: str
    path: KeyPath
    value: Any

    @classmethod
    def parse(cls, text: str) -> "Assignment":
        """Read `a.b=value`; a value that isn't TOML is a string.

        Raises:
            RunFileError: there is no `=`, or the key isn't a TOML key.
        """
        key, equals, value = text.partition("=")
        try:
            path = _only_path(tomllib.loads(f"{key} = 0"))
        except (tomllib.TOMLDecodeError, ValueError):
            path = ()
        if not equals or not path:
            raise RunFileError(
                "`--set` takes a dotted key, `=` and a value",
                where=f"  --set {text}",
                hint="write it as in `--set train.steps=100`",
            )
        return cls(text, path, _value(value))

    def gives(self, path: KeyPath) -> bool:
        """Return whether it sets a key, a part of its value, or a table with it."""
        depth = len(self.path)
        if path[:depth] == self.path:
            return _holds(self.value, path[depth:])
        return self.path[: len(path)] == path

    def apply(self, tables: Table) -> None:
        """Set the key in `tables`, making the tables above it."""
        *above, last = self.path
        for depth, key in enumerate(above, 1):
            tables = tables.setdefault(key, {})
            if not isinstance(tables, dict):
                raise RunFileError(
                    f"`{dotted(self.path[:depth])}` is a value and has no keys",
                    where=f"  --set {self.text}",
                    hint="set the whole value, or one that the run file gives as a table",
                )
        tables[last] = self.value


@attrs.frozen
class Source:
    """A run file as it was written.

    Args:
        file: the file's path.
        text: what it holds.
        sets: what the command line sets over it, in order.
    """

    file: Path
    text: str
    sets: tuple[Assignment, ...] = ()

    @classmethod
    def read(cls, file: Path, sets: Iterable[str] = ()) -> "Source":
        """Read a file.

        Raises:
            RunFileError: the file can't be read, isn't UTF-8, or a set is malformed.
        """
        try:
            text = file.read_text(encoding="utf-8-sig")
        except OSError as error:
            reason = error.strerror or error
            raise RunFileError(f"can't read the run file `{file}`: {reason}") from error
        except UnicodeDecodeError as error:
            raise RunFileError(f"the run file isn't UTF-8: {error}", where=f"  {file}") from error
        linecache.checkcache(str(file))  # it may have been edited since an earlier error
        return cls(file, text, tuple(Assignment.parse(each) for each in sets))

    def tables(self) -> Table:
        """Parse the file and lay the sets over it.

        Raises:
            RunFileError: the text isn't TOML, or a set goes through something not a table.
        """
        try:
            tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
            line, column = map(int, at.groups()) if at else (self.text.count("\n") + 1, 1)
            rest = self.text.split("\n")[line - 1][column - 1 :]
            word = re.match(r"\w*", rest)
            raise RunFileError(
                f"not TOML: {str(error)[: at.start() if at else None]}",
                where=Location(str(self.file), line, column - 1, column).excerpt(),
                hint=SPELT.get(word[0], "") if word else "",
            ) from error
        for assignment in self.sets:
            assignment.apply(tables)
        return tables

    def _written(self) -> Table:
        """Return what the text alone holds, as far as it parses."""
        *_, (_, tables) = [(0, {}), *_statements(self.text)]
        return tables

    def line(self, path: KeyPath) -> int:
        """Return the 1-based line of a key, of the nearest table above it, or 0."""
        while path:
            for line, tables in _statements(self.text):
                if _holds(tables, path):
                    return line
            path = path[:-1]
        return 0

    def where(self, path: KeyPath) -> str:
        """Return an excerpt that marks a key or the nearest table above it, or its `--set`."""
        if assignment := self._set(path):
            return f"  --set {assignment.text}"
        line = self.line(path)
        if not line:
            return f"  {self.file.name}"
        text = self.text.split("\n")[line - 1]
        names = [re.escape(key) for key in reversed(path) if isinstance(key, str)]
        marks = (re.search(rf"(?<![\w-]){name}(?![\w-])", text) for name in names)
        start, end = next((mark.span() for mark in marks if mark), (0, 0))
        return Location(str(self.file), line, start, end).excerpt()

    def _set(self, path: KeyPath) -> Assignment | None:
        """Return the last set of a key or of all above it, or that made a table not in the text."""
        for assignment in reversed(self.sets):
            if assignment.path == path[: len(assignment.path)]:
                return assignment
        made = (each for each in reversed(self.sets) if each.path[: len(path)] == path)
        return None if _holds(self._written(), path) else next(made, None)

    def error(self, problems: Iterable[Problem]) -> RunFileError:
        """Return one error for all problems, at least one, the first one in the file in full."""
        first, *others = sorted(problems, key=lambda problem: self.line(problem.path))
        return RunFileError(
            first.text,
            where=self.where(first.path),
            made=[
                *(self.where(path) for path in first.against),
                *(f"also: {problem.text}\n{self.where(problem.path)}" for problem in others),
            ],
            hint=first.hint,
        )


def _statements(text: str) -> Iterator[tuple[int, Table]]:
    """Yield each statement's first line, and the tables that the file holds at its end.

    A statement is the shortest run of lines after which the text parses again, so tomllib
    alone knows TOML: strings and arrays over several lines need no rules here.
    """
    lines = text.split("\n")  # splitlines would also split at characters that TOML doesn't
    first = 0
    for end, line in enumerate(lines, 1):
        if not first and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first or end
        try:
            tables = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        yield first, tables
        first = 0


def _holds(value: Any, path: KeyPath) -> bool:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _only_path(table: Table) -> KeyPath:
    """Return the path of the one leaf of `table`."""
    path: KeyPath = ()
    value: Any = table
    while isinstance(value, dict):
        ((key, value),) = value.items()
        path += (key,)
    return path


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text
