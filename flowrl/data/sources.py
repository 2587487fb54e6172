"""What a source's name means, and its rows one after another."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from flowrl.data.files import FILES, HUB_NAME, file_rows, files_of, names_files
from flowrl.data.query import split_query
from flowrl.data.reasoning import TASK, task_rows
from flowrl.data.record import Found, Record, RowError
from flowrl.data.tables import hub_rows, saved_rows
from flowrl.data.user import PYTHON_NAME, missing_file, user_rows
from flowrl.errors import DataError


@attrs.frozen
class Source:
    """A source, its options, and the folder that its relative paths start from."""

    name: str
    options: Mapping[str, Any]
    split: str | None
    folder: Path

    @classmethod
    def parse(
        cls, text: str, options: Mapping[str, Any], split: str | None, folder: Path
    ) -> "Source":
        """Take `?key=value&key=value` off the name of a task or a Python source."""
        name, its_options = split_query(text, options)
        if not (name.startswith(TASK) or PYTHON_NAME.fullmatch(name)):
            return cls(text, options, split, folder)
        return cls(name, its_options, split, folder)

    def other(self, text: str) -> "Source":
        """Return another source; of the same task or function, its options hold there too."""
        other = Source.parse(text, {}, None, self.folder)
        same = other.name == self.name
        return attrs.evolve(other, options={**self.options, **other.options}) if same else other

    def records(self) -> Iterator[Record | RowError]:
        """Yield each row, or what is wrong with it.

        Raises:
            DataError: the source does not exist or cannot be read at all.
        """
        for number, (where, columns) in enumerate(self.found()):
            if isinstance(columns, RowError):
                yield columns
            else:
                yield Record(number, where, columns)

    def lacks(self) -> str:
        """Return which file or folder that the name is of isn't there; "" if none is missing."""
        if PYTHON_NAME.fullmatch(self.name):
            return missing_file(self.name, self.folder)
        if names_files(self.name):
            return "" if files_of(self.name, self.folder) else f"file `{self.name}`"
        named = ":" in self.name or HUB_NAME.fullmatch(self.name)  # of a task, or on the hub
        return "" if named or self._path.exists() else f"folder `{self.name}`"

    def found(self) -> Found:
        """Return the rows, of which none is read before it is asked for.

        Raises:
            DataError: the source does not exist, or takes no such options.
        """
        if self.name.startswith(TASK):
            return task_rows(self.name.removeprefix(TASK), self.options)
        if PYTHON_NAME.fullmatch(self.name):
            return user_rows(self.name, self.options, self.folder)
        if names_files(self.name):
            self._refuse(options=self.options, split=self.split)
            return file_rows(self.name, self.folder)
        if self.name and self._path.is_dir():
            self._refuse(options=self.options)
            return saved_rows(self._path, self.name, self.split)
        if self._path.is_file():
            raise DataError(f"expected {', '.join(FILES)} files; got {self.name}", where=self.name)
        if hub := HUB_NAME.fullmatch(self.name):
            return hub_rows(hub["name"], hub["split"] or self.split, self.options)
        raise DataError(
            "there is no such data source",
            where=self.name,
            hint=f"write a path or glob of {', '.join(FILES)} files, a folder saved by `datasets`, "
            "a name on the hub (org/name), reasoning_gym:TASK, or path.py:name",
        )

    @property
    def _path(self) -> Path:
        return self.folder / Path(self.name).expanduser()

    def _refuse(self, **keys: object) -> None:
        """Refuse keys that this kind of source does not read."""
        for key, value in keys.items():
            if value:
                problem = f"`{key}` means nothing for this source; got {value!r}"
                raise DataError(problem, where=self.name, hint=f"leave `{key}` out")
