"""How long sequences are: a distribution of token counts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import exp, inf, log, sqrt
from statistics import NormalDist
from typing import Any

import attrs

from flowrl.errors import RunFileError

Spec = float | Mapping[str, float] | Sequence[tuple[float, float]]
"""A number; `{mean, max}` with `p99` or `std`; or a histogram of `(tokens, weight)`."""

NORMAL = NormalDist()
Z99 = NORMAL.inv_cdf(0.99)
KEYS = ("mean", "max", "p99", "std")
CELLS = (*(i / 48 for i in range(48)), *(1 - 2.0**-k for k in range(6, 31)), 1.0)
"""Quantiles between which a lognormal is one length: finer towards the longest, whose maximum
over many sequences counts."""


@attrs.frozen
class Lengths:
    """Token counts of sequences: each length with its share, the shortest first.

    Attributes:
        shares: `(tokens, probability)`; probabilities sum to 1.
    """

    shares: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, spec: Spec, where: str = "") -> "Lengths":
        """Read lengths as a run file gives them.

        A mean with a maximum is a lognormal distribution cut at the maximum, whose mean after the
        cut is the one given. Its spread comes from `p99` or `std`; without them, 1% of the
        sequences reach the maximum.

        Args:
            spec: a number, `{mean, max}` with `p99` or `std` or neither, or a histogram.
            where: names the place in errors.

        Raises:
            RunFileError: it is none of these, or its numbers contradict one another.
        """
        if isinstance(spec, Mapping):
            return _cut_lognormal(spec, where)
        pairs = [(spec, 1.0)] if isinstance(spec, int | float) else spec
        if not (all(map(_is_pair, pairs)) and any(weight for _, weight in pairs)):
            raise RunFileError(
                f"lengths need counts and weights that are not negative, one above 0; got {spec}",
                where=where,
                hint="write a number, {mean = 600, max = 1024}, or [[tokens, weight], ...]",
            )
        total = sum(weight for _, weight in pairs)
        return cls(tuple((float(tokens), weight / total) for tokens, weight in sorted(pairs)))

    @cached_property
    def mean(self) -> float:
        """Expected tokens of a sequence."""
        return sum(tokens * share for tokens, share in self.shares)

    @cached_property
    def mean_square(self) -> float:
        """Expected square of a sequence's tokens."""
        return sum(tokens * tokens * share for tokens, share in self.shares)

    @property
    def maximum(self) -> float:
        """The longest that there can be."""
        return self.shares[-1][0]

    def quantile(self, q: float) -> float:
        """Return the shortest length that at least a share `q` of the sequences don't pass."""
        below = 0.0
        for tokens, share in self.shares:
            below += share
            if below >= q - 1e-12:
                return tokens
        return self.maximum

    def survival(self) -> Iterator[tuple[float, float, float]]:
        """Yield `(start, end, share)`: between these lengths, the share longer than `start`.

        These are the steps of the survival function, as decoding sees them: between two steps
        the number of running sequences does not change.
        """
        start, over = 0.0, 1.0
        for tokens, share in self.shares:
            if tokens > start:
                yield start, tokens, min(max(over, 0.0), 1.0)
            start, over = tokens, over - share


def share_any(share: float, n: float) -> float:
    """Return the probability that at least one of `n` has what a `share` of all has."""
    return 1.0 - float((1.0 - share) ** n)


def _is_pair(pair: Any) -> bool:
    """Whether it is a number of tokens and its weight."""
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_count, pair))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < inf


def _cut_lognormal(spec: Mapping[str, float], where: str) -> Lengths:
    known = all(map(_is_count, spec.values())) and not set(spec) - set(KEYS)
    mean, top = spec.get("mean", 0), spec.get("max", inf)
    fits = known and 0 < mean <= spec.get("p99", mean) <= top
    if not fits or {"p99", "std"} <= set(spec):
        raise RunFileError(
            "lengths need a `mean` above 0, at most `max`, and perhaps `std`, or `p99` between; "
            f"got {dict(spec)}",
            where=where,
            hint="write {mean = 600, max = 1024}, or add p99 = 1000 or std = 250",
        )
    sigma = _sigma(mean, spec, top)
    if not sigma or mean == top:
        return Lengths(((float(mean), 1.0),))
    mu = _solve_mu(mean, sigma, top)
    shares: dict[float, float] = {}
    for low, high in pairwise(CELLS):
        tokens = _cell_mean(low, high, mu, sigma, top)
        shares[tokens] = shares.get(tokens, 0.0) + high - low
    return Lengths(tuple(sorted(shares.items())))


def _sigma(mean: float, spec: Mapping[str, float], top: float) -> float:
    """Return the spread of the logarithm: from the ratio of std, or of a high quantile, to mean."""
    if "std" in spec:
        return sqrt(log(1 + (spec["std"] / mean) ** 2))
    high = spec.get("p99", top)
    if high in (inf, mean):
        return 0.0
    # p99 / mean = exp(z s - s^2 / 2), whose smaller root ends at s = z
    return Z99 - sqrt(max(0.0, Z99**2 - 2 * log(max(1.0, high / mean))))


def _solve_mu(mean: float, sigma: float, top: float) -> float:
    """Return the location whose mean, cut at `top`, is `mean`; by bisection."""
    low = log(mean) - sigma**2 / 2
    if top == inf:
        return low
    high = low + 50 * sigma
    for _ in range(80):
        middle = (low + high) / 2
        reached = _below(middle, sigma, log(top)) + top * (1 - _cdf(middle, sigma, log(top)))
        low, high = (middle, high) if reached < mean else (low, middle)
    return low


def _cell_mean(low: float, high: float, mu: float, sigma: float, top: float) -> float:
    """Return the mean length between two quantiles, after the cut."""
    start, end = (_log_quantile(q, mu, sigma) for q in (low, high))
    cut = log(top) if top < inf else inf
    if start >= cut:
        return top
    inside = _below(mu, sigma, min(end, cut)) - _below(mu, sigma, min(start, cut))
    over = max(0.0, high - max(low, _cdf(mu, sigma, cut))) if cut < end else 0.0
    return (inside + (top * over if over else 0.0)) / (high - low)


def _log_quantile(q: float, mu: float, sigma: float) -> float:
    return -inf if q <= 0 else inf if q >= 1 else mu + sigma * NORMAL.inv_cdf(q)


def _cdf(mu: float, sigma: float, x: float) -> float:
    return NORMAL.cdf((x - mu) / sigma)


def _below(mu: float, sigma: float, x: float) -> float:
    """Return the part of a lognormal's mean that lies below `exp(x)`."""
    return exp(mu + sigma**2 / 2) * NORMAL.cdf((x - mu - sigma**2) / sigma)
