"""What to look at while a run goes on: one number each, without gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flowrl.functional.filters import has_signal
from flowrl.functional.groups import Groups
from flowrl.functional.ragged import select, spread
from flowrl.functional.reductions import token_mean


@torch.no_grad()
def quantiles(x: Tensor, *, at: Sequence[float] = (0.1, 0.5, 0.9)) -> tuple[Tensor, ...]:
    """Return f32[] for each of `at`, the quantile of the finite elements; of none it is 0."""
    kept = x[x.isfinite()]
    points = torch.tensor(at, dtype=x.dtype, device=x.device)
    return (kept.quantile(points) if len(kept) else torch.zeros_like(points)).unbind()


@torch.no_grad()
def zero_variance_share(rewards: Tensor, *, groups: Tensor | None = None) -> Tensor:
    """Return f32[], the share of groups without a signal: no gradient comes from them.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        groups: i64[N], the group of each sample.
    """
    dead = (~has_signal(rewards, groups=groups)).to(rewards.dtype)
    return dead.sum() / max(dead.numel(), 1)


@torch.no_grad()
def pass_at_k(correct: Tensor, *, k: int, groups: Tensor | None = None) -> Tensor:
    """Return f32[], the chance that one of `k` samples of a prompt is correct, over prompts.

    1 - C(n - c, k) / C(n, k) for c correct of n samples: unbiased, unlike the share of prompts
    of which the first k samples have a correct one.

    Args:
        correct: bool[..., sample], or bool[N] with `groups`.
        k: at most the samples of the smallest group.
        groups: i64[N], the group of each sample.

    Raises:
        ValueError: a group has fewer than `k` samples.

    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    by = Groups.of(correct, groups)
    if by.sizes.numel() and not 1 <= k <= int(by.sizes.min()):
        raise ValueError(f"k must be in [1, samples of a group = {int(by.sizes.min())}]; got {k}")
    wrong = by.sum((~correct.flatten()).to(torch.float64))
    draws = torch.arange(k, device=wrong.device)
    left = (wrong[:, None] - draws).clamp(min=0) / (by.sizes[:, None] - draws)
    solved = 1 - left.prod(-1)
    return (solved.sum() / max(len(solved), 1)).to(torch.get_default_dtype())


@torch.no_grad()
def approximate_kl(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """Return f32[], the mean of k3 over tokens that `old` sampled: KL(old || new), in nats."""
    new, old = select(mask, new, old)
    gap = new - old
    return token_mean(gap.expm1() - gap, mask)


@torch.no_grad()
def ratio_extremes(new: Tensor, old: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return f32[], f32[]: the least and the greatest exp(new - old) of a trained token.

    With nothing trained both are 1.
    """
    gap = (new - old)[mask]
    gap = gap if len(gap) else new.new_zeros(1)
    return gap.min().exp(), gap.max().exp()


@torch.no_grad()
def effective_sample_size(weights: Tensor, mask: Tensor) -> Tensor:
    """Return f32[], (sum w)^2 / (n sum w^2) over trained tokens: 1 if all weigh the same.

    Source: Kong 1992, "A note on importance sampling using standardized weights".
    """
    kept = weights[mask]
    if not kept.any():
        return weights.new_zeros(())
    kept = kept / kept.max()  # squares of large or small weights may be out of range
    return kept.sum().square() / (len(kept) * kept.square().sum())


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return f32[], 1 - var(returns - values) / var(returns): 1 is a perfect critic, 0 a constant.

    0 where the returns don't vary.
    """
    target, error = returns[mask], (returns - values)[mask]
    if len(target) < 2:
        return returns.new_zeros(())
    return torch.where(target.max() > target.min(), 1 - error.var() / target.var(), 0.0)


@torch.no_grad()
def sampled_gap(
    new: Tensor,
    sampled: Tensor,
    mask: Tensor,
    version: Tensor,
    now: Tensor,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return f32[], f32[]: mean and greatest |new - sampled| of tokens of the version in training.

    Where the weights are those that sampled, the trainer and the engine should agree. They are 0
    if no sample is of this version.

    Args:
        new: f32[..., token], the trainer's log-probabilities.
        sampled: f32[..., token], the engine's.
        mask: bool[..., token].
        version: i32[...], the number of updates of the model that sampled each row.
        now: i32[], that of the model being trained.
        lengths: i64[row] if packed.
    """
    same = spread(version == now, mask, lengths=lengths) & mask
    gap = select(same, (new - sampled).abs())[0]
    return token_mean(gap, same), gap.max() if gap.numel() else gap.sum()


@torch.no_grad()
def logprob_gap(train: Tensor, rollout: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return f32[], f32[]: mean and greatest |train - rollout| over trained tokens, in nats.

    What engine and trainer say of the same weights differs by rounding and kernels alone.
    """
    train, rollout = select(mask, train, rollout)
    gap = (train - rollout).abs()
    return token_mean(gap, mask), gap.max() if gap.numel() else gap.sum()
