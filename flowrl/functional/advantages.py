"""Returns and advantages: how much better a token or a sample was than expected.

Masked tokens are no actions: they neither cut a return nor cost a discount step. Each estimator
deletes them, works on the trained tokens of each row, packed, and puts the results back.
"""

import torch
from torch import Tensor

from flowrl.functional.group_advantages import group_advantage
from flowrl.functional.ragged import discounted_sums, put_back, row_counts, select, spread
from flowrl.functional.refusals import require_finite_tokens
from flowrl.functional.rewards import require_finite
from flowrl.functional.whitening import whiten


def discounted_returns(
    rewards: Tensor, mask: Tensor, *, gamma: float = 1.0, lengths: Tensor | None = None
) -> Tensor:
    """Return the discounted reward-to-go, G_k = r_k + gamma G_{k+1} over trained tokens.

    Args:
        rewards: f32[..., token], received for emitting the token.
        mask: bool[..., token], True on trained tokens; observations may lie between them.
        gamma: the discount of a trained token, in [0, 1].
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], in reward units.

    Raises:
        SampleRefusedError: a trained token's reward isn't finite.
    """
    require_finite_tokens("rewards", rewards, mask, lengths)
    returns = discounted_sums(rewards[mask], _trained(mask, lengths), gamma)
    return put_back(returns, mask)


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    bootstrap: Tensor | None = None,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns by generalised advantage estimation.

    Over the trained tokens, d_k = r_k + gamma V_{k+1} - V_k, A_k = d_k + gamma lam A_{k+1} and
    the return is A_k + V_k. Advantages aren't whitened.

    Args:
        rewards: f32[..., token], received for emitting the token.
        values: f32[..., token], the critic's value before the token is chosen, in reward units.
        mask: bool[..., token], True on trained tokens.
        bootstrap: f32[...], the value after the last trained token: 0, or what the critic says
            where a response was cut off. None is 0.
        gamma: the discount of a trained token, in [0, 1].
        lam: the decay, in [0, 1]; 0 gives the TD error, 1 the return minus the value.
        lengths: i64[row] if packed.

    Returns:
        Two f32[..., token], in reward units.

    Raises:
        SampleRefusedError: the reward or value of a trained token, or a bootstrap, isn't finite.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    require_finite_tokens("rewards", rewards, mask, lengths)
    require_finite_tokens("values", values, mask, lengths)
    trained = _trained(mask, lengths)
    value = values[mask]
    last = trained.cumsum(0) - 1
    following = value.roll(-1)
    after = torch.zeros_like(trained, dtype=value.dtype) if bootstrap is None else bootstrap
    (after,) = select(trained > 0, after.flatten())
    require_finite(after, what="bootstrap values")
    following[last[trained > 0]] = after[trained > 0]
    delta = rewards[mask] + gamma * following - value
    advantages = discounted_sums(delta, trained, gamma * lam)
    return put_back(advantages, mask), put_back(advantages + value, mask)


def token_rewards(
    scores: Tensor,
    mask: Tensor,
    kl_penalty: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return a reward a token: the row's score on its last trained token, less the penalty.

    Args:
        scores: f32[...], one a row. A row with no trained token gets nothing of it.
        mask: bool[..., token], True on trained tokens.
        kl_penalty: f32[..., token], already times its coefficient, in score units.
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], in score units.

    Raises:
        SampleRefusedError: the score of a row with trained tokens isn't finite.

    Source: Ziegler et al. 2019, arXiv:1909.08593, eq. 2; Ouyang et al. 2022, arXiv:2203.02155.
    """
    trained = _trained(mask, lengths)
    last = trained.cumsum(0) - 1
    count = int(mask.sum())
    rewards = scores.new_zeros(count) if kl_penalty is None else -kl_penalty[mask]
    scored = trained > 0
    (placed,) = select(scored, scores.flatten())
    require_finite(placed)
    rewards = rewards.index_add(0, last[scored], placed[scored].to(rewards.dtype))
    return put_back(rewards, mask)


def rows_without_tokens(mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return i64[n], the rows with no trained token: no reward can reach them."""
    return (_trained(mask, lengths) == 0).nonzero().flatten()


def remax(
    rewards: Tensor, mask: Tensor, baseline: Tensor, *, lengths: Tensor | None = None
) -> Tensor:
    """Return the reward-to-go minus the reward of the greedy answer to the same prompt.

    Args:
        rewards: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        baseline: f32[...], one a row: the greedy answer's reward.
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], in reward units.

    Raises:
        SampleRefusedError: a trained token's reward, or the baseline of a row, isn't finite.

    Source: Li et al. 2024, arXiv:2310.10505, algorithm 1.
    """
    returns = discounted_returns(rewards, mask, lengths=lengths)
    (taken,) = select(_trained(mask, lengths) > 0, baseline.flatten())
    require_finite(taken, what="baselines")
    return select(mask, returns - spread(baseline, mask, lengths=lengths))[0]


def reinforce_plus_plus(
    rewards: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-8,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return discounted returns, whitened over all trained tokens of the batch.

    Args:
        rewards: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        gamma: the discount of a trained token, in [0, 1].
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared reward units.
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], unitless.

    Source: Hu et al. 2025, arXiv:2501.03262.
    """
    returns = discounted_returns(rewards, mask, gamma=gamma, lengths=lengths)
    return whiten(returns, mask, ddof=ddof, eps=eps)


def reinforce_plus_plus_baseline(
    rewards: Tensor,
    mask: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-8,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Return rewards less their group's mean, at every trained token, whitened over the batch.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        mask: bool[..., sample, token], or packed with `lengths`: True on trained tokens.
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared reward units.
        lengths: i64[N] if packed.
        groups: i64[N], the group of each sample.

    Returns:
        The form of `mask`, unitless.

    Source: Hu et al. 2025, arXiv:2501.03262.
    """
    centred = group_advantage(rewards, norm_by_std=False, groups=groups)
    return whiten(spread(centred, mask, lengths=lengths), mask, ddof=ddof, eps=eps)


def _trained(mask: Tensor, lengths: Tensor | None) -> Tensor:
    """Return i64[row], the trained tokens of each row, rows in one dimension."""
    return row_counts(mask, lengths=lengths).flatten()
