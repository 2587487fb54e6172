"""Scores, the rows that have none, and what a run does about those."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from flowrl.errors import RewardError
from flowrl.rewards.call import FaultKind
from flowrl.runtime.rows.rows import Row

Policy = Literal["fail", "drop_group", "score_zero"]
"""`on_reward_error` of the run file."""

ALWAYS_FATAL = ("wrong_type", "denied", "no_json", "unreadable")
OF_THE_CALL = ("wrong_count", "unanswered", "denied", "no_json", "unreadable")

ADVICE: Mapping[FaultKind | Literal["model"], str] = {
    "exception": "fix the function or the row",
    "timeout": "raise `time_limit` if the function was only slow",
    "not_a_number": "return a finite number for every completion",
    "wrong_count": "return one number for each completion, in their order",
    "model": "look for an overflow: try another `dtype` of the model",
    "wrong_type": "return numbers: one int, float, bool or 0-d array for each completion",
    "unanswered": "look at the server; if it was only busy, raise `time_limit` or `retries`, or "
    "lower `concurrency` or `batch`",
    "refused": "fix the row, or what the server accepts",
    "denied": "fix the address, the key or the server",
    "no_json": "look at what answers there: the server, or what stands before it, such as a proxy "
    "or a login page",
    "unreadable": "fix `kind`, or what the server answers",
    "no_number": "fix `template` or `pattern`, or let the judge write more",
}


@attrs.frozen
class Failure:
    """A completion without a score.

    Attributes:
        index: of the completion.
        kind: of the failure.
        text: what went wrong; it goes on from `giver`.
        giver: what gave no score, such as "function `rewards.py:f`".
        source: an excerpt of the line that raised.
    """

    index: int
    kind: FaultKind | Literal["model"]
    text: str
    giver: str
    source: str = ""


@attrs.frozen
class Scores:
    """What a reward says of some completions.

    Attributes:
        values: one a completion; None where that failed, or was not asked any more.
        failures: by index, one for each completion that has none because of it.
        recovered: calls that failed although each of their completions, called alone, did not.
        retries: times that requests were asked again; None if no server is asked.
    """

    values: list[float | None]
    failures: list[Failure]
    recovered: int = 0
    retries: int | None = None

    def counts(self, name: str) -> dict[str, float]:
        """Return the metrics that keep a failure of the reward `name` from vanishing."""
        timeouts = sum(failure.kind == "timeout" for failure in self.failures)
        asked_again = {} if self.retries is None else {f"reward/{name}/retries": self.retries}
        counts = {
            "reward/errors": len(self.failures) - timeouts,
            "reward/timeouts": timeouts,
            "reward/recovered": self.recovered,
        }
        return {metric: float(count) for metric, count in (counts | asked_again).items()}

    def check(self, policy: Policy, rows: Sequence[Row], samples: Sequence[int], step: int) -> None:
        """Raise the first failure that `policy` does not go on from.

        Args:
            policy: `on_reward_error`.
            rows: the row of each completion.
            samples: the number of each completion among those of its prompt, from 0.
            step: the step of the run.

        Raises:
            RewardError: naming what failed, what it did, the row, sample and step.
        """
        failure = fatal(policy, self.failures)
        if failure:
            row, sample = rows[failure.index], samples[failure.index]
            raise failure_error(failure, row, sample, step)


def of_model(name: str, values: Sequence[float]) -> Scores:
    """Return what a reward model gave; one that isn't finite is a failure, as a function's is."""
    kept = [value if math.isfinite(value) else None for value in values]
    failures = [
        Failure(i, "model", f"gave {value}", f"model `{name}`")
        for i, value in enumerate(values)
        if kept[i] is None
    ]
    return Scores(kept, failures)


def fatal(policy: Policy, failures: Sequence[Failure]) -> Failure | None:
    """Return the first failure that ends the run."""
    return next((f for f in failures if is_fatal(policy, f.kind)), None)


def is_fatal(policy: Policy, kind: FaultKind | Literal["model"]) -> bool:
    """Return whether a failure of this kind ends the run.

    Under "fail" any does. Some always do: no sample is to blame for them, and a run that dropped
    or zeroed all of them would train on nothing.
    """
    return policy == "fail" or kind in ALWAYS_FATAL


def failure_error(failure: Failure, row: Row, sample: int, step: int) -> RewardError:
    """Return the error of one failure, with all that is known of it."""
    advice = ADVICE[failure.kind]
    if failure.kind not in ALWAYS_FATAL:
        advice += '; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it'
    first = ", the first of the call" if failure.kind in OF_THE_CALL else ""
    return RewardError(
        f"the reward {failure.giver} {failure.text}",
        where=f"  {row.where} (row {row.id}), sample {sample}, step {step}{first}",
        made=[failure.source],
        hint=advice,
    )
