"""Which function scores a row, and whether the row has what that function needs."""

from collections.abc import Iterable, Mapping

import attrs

from flowrl.errors import RewardError, nearest
from flowrl.rewards.resolve import Columns
from flowrl.runtime.rows.rows import Row


@attrs.frozen
class Target:
    """What gives a reward, for messages, and the columns that it takes.

    giver: "function `rewards.py:f`", "server `http://host/score`".
    """

    giver: str
    takes: Columns


@attrs.frozen
class Route:
    """The functions of one reward.

    Attributes:
        by: the column that picks one; None if there is one for every row.
        targets: the functions by that column's value; by "" without one.
    """

    by: str | None
    targets: Mapping[str, Target]

    @property
    def needs(self) -> frozenset[str]:
        """The columns that every row must have, whichever function it picks."""
        always = frozenset.intersection(*(t.takes.needed for t in self.targets.values()))
        return always | ({self.by} if self.by else frozenset())

    def value(self, row: Row) -> str:
        """Return the value that picks the row's function.

        Raises:
            RewardError: the row lacks the column, or no function goes by its value.
        """
        if self.by is None:
            return ""
        if self.by not in row.columns:
            raise _lacks(row, self.by, "the reward picks its function by")
        value = str(row.columns[self.by])
        if value not in self.targets:
            raise RewardError(
                f"no reward function goes by `{self.by}` = {value!r}{nearest(value, self.targets)}",
                where=_at(row),
                hint=f"the known ones are {', '.join(map(repr, self.targets))}",
            )
        return value

    def check(self, row: Row) -> None:
        """Refuse a row that its function cannot be called with, or would not see whole.

        Raises:
            RewardError: naming the row and the column.
        """
        target = self.targets[self.value(row)]
        missing = sorted(target.takes.needed - row.columns.keys())
        if missing:
            raise _lacks(row, missing[0], f"the reward {target.giver} needs")
        for text in target.takes.texts:
            if text in row.columns and not (text == "prompts" and row.columns[text] == row.prompt):
                raise RewardError(
                    f"the data have a column `{text}`, but the `{text}` that the reward "
                    f"{target.giver} takes are the texts of the run",
                    where=_at(row),
                    hint="give the column another name",
                )


@attrs.frozen
class Routes:
    """The functions of all rewards, by the reward's name: what rows must have."""

    of: Mapping[str, Route]

    @property
    def needs(self) -> dict[str, str]:
        """The columns that every row must have, whichever functions it picks, and for what."""
        found: dict[str, str] = {}
        for name, route in self.of.items():
            for column in route.needs:
                found.setdefault(column, f"the reward `{name}`")
        return found

    def check(self, rows: Iterable[Row]) -> None:
        """Refuse rows that a reward cannot be called with, before anything is generated.

        Raises:
            RewardError: naming the first such row and what it lacks.
        """
        for row in rows:
            for route in self.of.values():
                route.check(row)


def _lacks(row: Row, column: str, needed_by: str) -> RewardError:
    return RewardError(
        f"{needed_by} the column `{column}`, which the row lacks",
        where=_at(row),
        hint=f"add `{column}` to the row, or leave the row out",
    )


def _at(row: Row) -> str:
    return f"  {row.where} (row {row.id})"
