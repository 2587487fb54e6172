"""Procedural tasks of reasoning-gym: rows with a right answer, and their scorer."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import attrs

from flowrl.data.record import Found
from flowrl.errors import DataError, nearest

TASK = "reasoning_gym:"
"""What the name of a task starts with, where a source or a reward is named."""

Extract = Literal["last_number"]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def task_rows(task: str, options: Mapping[str, Any]) -> Found:
    """Yield rows of `question`, `answer` and `entry`, which is what the scorer needs.

    A task draws with replacement: rows may repeat. Row i is a function of the options and i.
    """
    entries = _create(task, options)
    for index in range(len(entries)):
        entry = entries[index]
        columns = {"question": entry["question"], "answer": entry["answer"], "entry": entry}
        yield f"reasoning_gym:{task}:{index + 1}", columns


def _create(task: str, options: Mapping[str, Any]) -> Any:
    """Return the task's data set, or say which name or option is wrong."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    where = f"reasoning_gym:{task}"
    if task not in DATASETS:
        raise DataError(f"reasoning_gym has no task `{task}`{nearest(task, DATASETS)}", where=where)
    fields = list(DATASETS[task][1].__dataclass_fields__)
    for option in options:
        if option not in fields:
            problem = f"the task has no option `{option}`{nearest(option, fields)}"
            raise DataError(problem, where=where, hint=f"its options are {', '.join(fields)}")
    try:
        return reasoning_gym.create_dataset(task, **options)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"the task refuses its options: {error}", where=where) from error


@attrs.frozen
class Scorer:
    """The reward 1 for a right answer to a task's question, otherwise 0; see `scorer`."""

    task: str
    options: Mapping[str, Any]
    threshold: float
    extract: Extract | None

    @cached_property
    def _entries(self) -> Any:
        return _create(self.task, self.options)

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        *,
        entry: Sequence[Mapping[str, Any]],
    ) -> list[float]:
        """Return 1.0 or 0.0 for each completion, by the `entry` of its row."""
        pairs = zip(completions, entry, strict=True)
        return [float(self.threshold <= self._score(text, row) <= 1) for text, row in pairs]

    def _score(self, text: str, entry: Mapping[str, Any]) -> float:
        """Return the task's score in [0, 1], which is 0 for an answer that it cannot parse.

        Some tasks raise there. They accept the row's own answer, unless the row is at fault.
        """
        try:
            return float(self._entries.score_answer(self._answer(text), entry))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            self._entries.score_answer(entry["answer"], entry)
            return 0.0

    def _answer(self, text: str) -> str:
        if self.extract is None:
            return text.strip()
        numbers = NUMBER.findall(text)
        return numbers[-1].replace(",", "") if numbers else ""


def scorer(
    task: str, *, threshold: float = 1.0, extract: Extract | None = None, **options: Any
) -> Scorer:
    """Return the reward function of a task, which can be pickled.

    Args:
        task: the task's name in reasoning-gym.
        threshold: scores from it to 1 are right. Tasks give right answers exactly 1 and some
            credit to wrong ones: `spell_backward` gives 1 +- 2e-16 to a right answer with
            letters after it, so a lower threshold is open to reward hacking.
        extract: `last_number` scores the last number in a completion, not all of its text.
        options: those of the task that its scoring depends on, if any.

    Raises:
        DataError: there is no such task or option.
    """
    if extract not in (None, "last_number"):
        raise DataError(f'`extract` must be "last_number" or left out; got "{extract}"')
    made = Scorer(task, options, threshold, extract)
    made._entries  # noqa: B018 a wrong name or option is found here, not at the first score
    return made
