"""The columns that a prompt's template reads."""

from typing import Any

from flowrl.errors import DataError

HINT = (
    "a column is written {question}, {question!r} (or `!s`, `!a`) or {score:.2f}; "
    "a plain brace {{ or }}"
)


def template_columns(template: str) -> frozenset[str]:
    """Return the columns that a template reads, those in formats too: `{score:.{digits}f}`.

    Raises:
        DataError: it is not a `str.format` template over names, or no row can fill it in.
    """
    columns = _Columns()
    try:
        template.format_map(columns)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"`template` is not a template: {error}", hint=HINT) from error
    if any(not column.isidentifier() for column in columns):
        problem = f"`template` has a field without a column's name: {template!r}"
        raise DataError(problem, hint=HINT)
    return frozenset(columns)


class _Columns(dict[str, Any]):
    """A row that has every column; its keys are those that were read."""

    def __missing__(self, column: str) -> "_Any":
        self[column] = _Any()
        return _Any()


class _Any:
    """What a column may hold: all attributes and items, and each format that something has."""

    def __getattr__(self, _: str) -> "_Any":
        return self

    def __getitem__(self, _: object) -> "_Any":
        return self

    def __repr__(self) -> str:
        return "1"

    def __format__(self, spec: str) -> str:
        dated = "%" in spec  # as in {day:%d %B}
        if not dated and not any(_takes(value, spec) for value in ("", 0, 0.0)):
            raise ValueError(f"neither text nor numbers nor dates have the format {spec!r}")
        return "1"  # that of another column, if it is one that rows give


def _takes(value: str | float, spec: str) -> bool:
    try:
        format(value, spec)
    except (MemoryError, ValueError):  # the former of a width of many digits
        return False
    return True
