"""Losses on pairs of samples, the chosen one first."""

from torch import Tensor
from torch.nn.functional import logsigmoid

from flowrl.functional.groups import Groups


def dpo_loss(
    ratios: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    groups: Tensor | None = None,
) -> Tensor:
    """Return -log sigmoid(beta (chosen - rejected)) of each pair's log-ratios.

    Args:
        ratios: f32[..., sample], or f32[N] with `groups`: each completion's log-probability under
            the policy less that under the reference (`row_sum` of its tokens'). Two samples a
            pair, the chosen one first.
        beta: strength of the implied KL penalty, > 0.
        label_smoothing: the share of pairs taken to be labelled wrongly, in [0, 0.5).
        groups: i64[N], the pair of each sample.

    Returns:
        f32[...], or f32[pair] with `groups`, in the order in which the pairs first appear.

    Raises:
        ValueError: a pair hasn't two samples, or an option is out of range.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7; label smoothing: Mitchell 2023,
        "A note on DPO with noisy preferences".
    """
    if not beta > 0:
        raise ValueError(f"beta must be above 0; got {beta}")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5); got {label_smoothing}")
    logits = beta * _margin(ratios, groups)
    losses = -logsigmoid(logits)
    if label_smoothing:  # 0 times an infinite loss is NaN
        losses = (1 - label_smoothing) * losses - label_smoothing * logsigmoid(-logits)
    return losses


def bradley_terry(rewards: Tensor, *, margin: float = 0.0, groups: Tensor | None = None) -> Tensor:
    """Return -log sigmoid(r_chosen - r_rejected - margin), which trains a reward model.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`. Two samples a pair, the chosen first.
        margin: how much better the chosen one has to be, in reward units.
        groups: i64[N], the pair of each sample.

    Returns:
        f32[...], or f32[pair] with `groups`, in the order in which the pairs first appear.

    Raises:
        ValueError: a pair hasn't two samples.

    Source: Ouyang et al. 2022, arXiv:2203.02155, eq. 1; margin: Touvron et al. 2023,
        arXiv:2307.09288, eq. 2.
    """
    return -logsigmoid(_margin(rewards, groups) - margin)


def _margin(scores: Tensor, groups: Tensor | None) -> Tensor:
    """Return the first sample's score less the second's, for each pair."""
    by = Groups.of(scores, groups)
    odd = (by.sizes != 2).nonzero().flatten().tolist()
    if odd:
        size = int(by.sizes[odd[0]])
        raise ValueError(
            f"a pair must have two samples, the chosen one first; pair {odd[0]} has {size}"
        )
    chosen, rejected = scores.flatten()[by.order].view(-1, 2).unbind(-1)
    margin = chosen - rejected
    return margin.view(scores.shape[:-1]) if groups is None else margin
