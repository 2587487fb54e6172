"""What a run file says of evaluations, key against key."""

from collections.abc import Iterator

from flowrl.config.rules.limits import above
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import Problem
from flowrl.errors import nearest


def evaluation_fits(tables: Tables) -> Iterator[Problem]:
    """Yield numbers of samples, a temperature or a reward that no evaluation can report by."""
    evaluation = tables.eval
    if evaluation is None:
        return
    samples = evaluation.samples
    for index, k in enumerate(evaluation.pass_at):
        if k > samples:
            yield above(("eval", "pass_at", index), k, ("eval", "samples"), samples)
    if samples > 1 and evaluation.temperature == 0:
        yield Problem(
            ("eval", "temperature"),
            f"`eval.temperature` = 0 is greedy: all `eval.samples` = {samples} would be equal",
            hint="`eval.greedy = true` reports the greedy completion beside the samples",
            against=(("eval", "samples"),),
        )
    rewards = list(tables.reward.functions)
    names = ", ".join(rewards) or "none"
    if evaluation.reward is None and len(rewards) != 1:
        yield Problem(
            ("eval",),
            f"[eval] must say which reward to report: [reward] names {names}",
            hint='add `reward = "..."` to [eval]' if rewards else "add one to [reward]",
        )
    if evaluation.reward is not None and evaluation.reward not in rewards:
        yield Problem(
            ("eval", "reward"),
            f"`eval.reward`: no reward `{evaluation.reward}`{nearest(evaluation.reward, rewards)}",
            hint=f"[reward] names {names}",
            against=(("reward",),),
        )
