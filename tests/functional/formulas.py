"""Losses and weights written out in numpy, float64, on padded rows: what torch is held to."""

import numpy as np


def shares(mask, mode, *, denominator="active", horizon=None):
    """Return the weight of each token's loss in the whole: loss = sum(weight * token loss)."""
    tokens = mask.sum(1, keepdims=True)
    rows = max((tokens > 0).sum() if denominator == "active" else len(mask), 1)
    per_row = {
        "token-mean": rows / max(mask.sum(), 1),
        "seq-mean-token-mean": 1 / np.maximum(tokens, 1),
        "seq-mean-token-sum": 1,
        "seq-mean-token-sum-norm": 1 / (horizon or 1),
    }
    return mask * per_row[mode] / rows


def clipped(new, old, advantages, *, low, high, dual=None):
    """Return the clipped surrogate of each token, and its slope in `new`."""
    ratio = np.exp(new - old)
    free, held = ratio * advantages, np.clip(ratio, 1 - low, 1 + high) * advantages
    objective, slope = np.minimum(free, held), np.where(held < free, 0, free)
    if dual is not None:
        bound = (advantages < 0) & (objective < dual * advantages)
        objective, slope = np.where(bound, dual * advantages, objective), np.where(bound, 0, slope)
    return -objective, -slope


def sequences(new, old, advantages, mask, *, low, high):
    """Return GSPO's objective of each row with tokens, and its slope in each token of `new`."""
    tokens = np.maximum(mask.sum(1), 1)
    mean = lambda x: np.where(mask, x, 0).sum(1) / tokens
    loss, slope = clipped(mean(new - old), np.zeros(len(new)), mean(advantages), low=low, high=high)
    return loss, mask * (slope / tokens)[:, None]


def weights(train, rollout, mask, *, level, mode, low, high):
    """Return importance weights, and which tokens are kept."""
    gap, tokens = np.where(mask, train - rollout, 0), np.maximum(mask.sum(1), 1)
    rows = {"sequence": gap.sum(1), "geomean": gap.sum(1) / tokens}
    whole = {name: np.exp(x)[:, None] + 0 * gap for name, x in rows.items()}
    least, most = 0 if low is None else low, np.inf if high is None else high
    own = whole.get(level, np.exp(gap))
    if mode == "truncate":
        return np.where(mask, np.clip(own, least, most), 0), mask
    judged = own if mode == "mask" else whole["geomean"]
    keep = mask & (judged >= least) & (judged <= most)
    return np.where(keep, own if mode == "mask" else np.clip(own, least, most), 0), keep
