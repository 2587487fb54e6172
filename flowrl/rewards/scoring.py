"""The rewards of a run, as the runtime calls them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scores import Policy, of_model
from flowrl.runtime.host import ScoreFunction, Scores
from flowrl.runtime.rows.rows import Row


def score_function(pool: RewardPool, policy: Policy) -> ScoreFunction:
    """Return the function that scores completions by each of several rewards.

    It raises the first failure that `policy` does not go on from; the others are None, and
    counted. It takes steps from 0, as the runtime counts, and names them from 1, as logs do.
    """

    def score(
        functions: Sequence[str],
        rows: Sequence[Row],
        completions: Sequence[str],
        samples: Sequence[int],
        step: int,
        given: Mapping[str, list[float]],
    ) -> Scores:
        values: list[list[float | None]] = []
        counts: dict[str, float] = defaultdict(float)
        for name in functions:
            if name in given:
                scores = of_model(name, given[name])
            else:
                scores = pool.score(name, rows, completions, policy)
            scores.check(policy, rows, samples, step + 1)
            values.append(scores.values)
            for metric, count in scores.counts(name).items():
                counts[metric] += count
        return Scores(values, counts)

    return score
