"""A baseline for each token of a group, by how much of the gradient's variance it answers for."""

import torch
from torch import Tensor

from flowrl.functional.advantages import discounted_returns
from flowrl.functional.groups import Groups
from flowrl.functional.ragged import discounted_sums, put_back, row_counts


def optimal_token_baseline(
    rewards: Tensor,
    mask: Tensor,
    logprobs: Tensor,
    collision: Tensor,
    *,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Return the reward-to-go less the baseline that makes the gradient's variance least.

    At the k-th trained token, B_k = sum_i W_ik G_ik / sum_i W_ik over the group's samples that
    have one. W_ik sums 1 - 2 pi + sum_v pi_v^2 over the sample's tokens up to the k-th: the
    squared norm of the gradient of log pi in the logits, which stands for that in the weights.
    A token that no other sample of the group reaches has no baseline to compare with, as in a
    group of one: it gets 0. So do tokens whose samples all have the same reward-to-go.

    Args:
        rewards: f32[..., sample, token], or packed with `lengths`.
        mask: bool, the same form: True on trained tokens.
        logprobs: f32, the same form: under the policy that sampled.
        collision: f32, the same form: sum_v pi_v^2, the chance that two draws are the same token.
        lengths: i64[N] if packed.
        groups: i64[N], the group of each sample.

    Returns:
        The form of `rewards`, in reward units.

    Source: Li et al. 2026, arXiv:2602.07078.
    """
    trained = row_counts(mask, lengths=lengths)
    group = Groups.of(trained, groups).index
    trained = trained.flatten()
    returns = discounted_returns(rewards, mask, lengths=lengths)[mask]
    energy = (1 - 2 * logprobs[mask].exp() + collision[mask]).clamp(min=0)
    weight = discounted_sums(energy.flip(0), trained.flip(0), 1.0).flip(0)
    by = Groups.of(returns, _places(group, trained))
    total = by.sum(weight)
    baseline = by.sum(weight * returns) / torch.where(total > 0, total, 1.0)
    varied = by.spread(by.max(returns) > by.min(returns))
    return put_back(torch.where(varied, returns - by.spread(baseline), 0.0), mask)


def _places(group: Tensor, trained: Tensor) -> Tensor:
    """Return i64[n], one number for each group and count of trained tokens before."""
    starts = (trained.cumsum(0) - trained).repeat_interleave(trained)
    before = torch.arange(len(starts), device=starts.device) - starts
    return group.repeat_interleave(trained) * (len(starts) + 1) + before
