"""The columns that a prompt's template reads."""

from string import Formatter

from flowrl.errors import DataError


def template_columns(template: str) -> frozenset[str]:
    """Return the columns that a template reads.

    Raises:
        DataError: it is not a `str.format` template over names.
    """
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        hint = "write {{ and }} for braces that stand for themselves"
        raise DataError(f"`template` is not a template: {error}", hint=hint) from error
    columns = frozenset(name.partition(".")[0].partition("[")[0] for name in names)
    if any(not column.isidentifier() for column in columns):
        hint = 'name columns: "Question: {question}"; write {{ and }} for plain braces'
        raise DataError(f"`template` has a field without a column's name: {template!r}", hint=hint)
    return columns
