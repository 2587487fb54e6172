"""What `[data]` of a run file says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs

from flowrl.data.template import template_columns
from flowrl.errors import DataError

RowKind = Literal["prompts", "examples", "pairs"]
OnLongPrompt = Literal["fail", "skip", "truncate_left"]
OnBadRow = Literal["fail", "skip"]

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _at_least(least: int) -> Validator:
    """Refuse a smaller number; None stands for "not set"."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: int | None) -> None:
        if value is not None and value < least:
            raise DataError(f"`{attribute.name}` must be at least {least}; got {value}")

    return check


def _one_of(*known: str) -> Validator:
    """Refuse any other word."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: str) -> None:
        if value not in known:
            names = ", ".join(f'"{name}"' for name in known)
            raise DataError(f'`{attribute.name}` must be one of {names}; got "{value}"')

    return check


def _told_apart(spec: "DataSpec", _: "attrs.Attribute[Any]", value: str | None) -> None:
    """Refuse `exclude` without a column to compare."""
    if value is not None and spec.unique_key is None:
        raise DataError("`exclude` needs `unique_key`, the column by which rows are told apart")


def _over_columns(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    """Refuse a template with braces that no row can fill in."""
    if value is not None:
        template_columns(value)


def _worked(_: object, attribute: "attrs.Attribute[Any]", value: Sequence[Any]) -> None:
    """Refuse a worked example that is not a prompt and its completion."""
    for number, example in enumerate(value, start=1):
        if not (
            isinstance(example, Mapping)
            and set(example) == {"prompt", "completion"}
            and all(isinstance(text, str) for text in example.values())
        ):
            raise DataError(
                f"`{attribute.name}` {number} must be {{prompt = text, completion = text}}; "
                f"got {example!r}"
            )


@attrs.frozen
class DataSpec:
    """Where rows come from, which become prompts, and in what order they are drawn.

    Rows pass in this order: read, `unique_key` and `exclude`, `skip_rows` and `limit`, checks
    and tokens. So two specs that differ in `skip_rows` and `limit` alone and do not overlap in
    these hold different rows; with `unique_key`, different contents too.
    """

    source: str
    """A path or glob of .jsonl, .csv, .parquet or .arrow files, a folder that `datasets` saved,
    a name on the hub (`org/name` or `org/name:split`), `reasoning_gym:TASK`, or `path.py:name`:
    rows as dicts, or a function returning them. `?key=value` after the last two adds options."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Keyword arguments of the reasoning_gym task, the Python function or the hub's loader."""
    split: str | None = None
    """The split of a hub name or a saved folder; may be left out if there is only one."""
    prompt_key: str = "prompt"
    """The column with the prompt: text, or chat messages (`question` for reasoning_gym)."""
    completion_key: str = "completion"
    """The column with what follows an example's prompt (`answer` for reasoning_gym)."""
    chosen_key: str = "chosen"
    """The column with a pair's better completion."""
    rejected_key: str = "rejected"
    """The column with a pair's worse completion."""
    template: str | None = attrs.field(default=None, validator=_over_columns)
    """The prompt as a `str.format` template over columns: "Question: {question}\\nAnswer:"."""
    system: str | None = None
    """The system message of chat prompts; a row's own takes precedence."""
    chat: bool | None = None
    """True: text prompts become a user's turn in the chat template; messages are always chat. A
    row's column `tools`, a list of schemas, is given to the template."""
    examples: Sequence[Mapping[str, str]] = attrs.field(factory=list, validator=_worked)
    """Worked examples, {prompt, completion}, before each prompt: chat turns, or text."""
    shuffle: bool = True
    """Draw each epoch in its own order, a function of the seed and the epoch's number."""
    sampler: str | None = None
    """`path.py:name` of a function (rows, epoch, seed) -> indices of rows, as many as there are
    rows, instead of `shuffle`. It may repeat rows; it must give the same when called again."""
    seed: int | None = None
    """The seed of the order; the run's seed if left out."""
    epochs: int | None = attrs.field(default=None, validator=_at_least(1))
    """How often every row may be drawn; no end if left out."""
    max_prompt_tokens: int = attrs.field(default=1024, validator=_at_least(1))
    """The most tokens of a prompt, as sent to the engine."""
    on_long_prompt: OnLongPrompt = attrs.field(
        default="fail", validator=_one_of("fail", "skip", "truncate_left")
    )
    """What happens to a longer prompt; `truncate_left` keeps its last tokens."""
    on_bad_row: OnBadRow = attrs.field(default="fail", validator=_one_of("fail", "skip"))
    """What happens to a row that cannot be read or lacks a column; skipped rows are counted."""
    limit: int | None = attrs.field(default=None, validator=_at_least(1))
    """Most rows to use, after `skip_rows`."""
    skip_rows: int = attrs.field(default=0, validator=_at_least(0))
    """Rows to leave out at the start, such as those held out by another spec's `limit`."""
    unique_key: str | None = None
    """Of rows that are equal in this column, ignoring case, keep the first."""
    exclude: str | None = attrs.field(default=None, validator=_told_apart)
    """Another source: no row equals one of its rows in `unique_key`, ignoring case."""

    def check_lasts(self, steps: int, rows_per_step: int, rows: int | None = None) -> None:
        """Refuse data that end before a run does.

        Args:
            steps: of the run.
            rows_per_step: that each draws.
            rows: that there are to draw; as many as `limit` lets there be, if they aren't read.

        Raises:
            DataError: `epochs` times the rows are fewer than the run draws.
        """
        most, drawn = self.limit if rows is None else rows, steps * rows_per_step
        if self.epochs is None or most is None or self.epochs * most >= drawn:
            return
        there = f"{self.epochs * most}{' at most' if rows is None else ''}"
        each = f"`limit` = {most}" if rows is None else f"{most} rows"
        raise DataError(
            f"the run draws {drawn} rows (`train.steps` = {steps} x `train.prompts_per_step` = "
            f"{rows_per_step}), and there are {there}: `epochs` = {self.epochs} x {each}",
            where=self.source,
            hint="raise `epochs`, leave it out to go on for ever, or train fewer steps",
        )
