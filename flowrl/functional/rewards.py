"""Rewards before they become advantages."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flowrl.functional.refusals import SampleRefusedError


def combine_rewards(
    rewards: Tensor, *, weights: Sequence[float] | None = None, lengths: Tensor | None = None
) -> Tensor:
    """Return the weighted sum of the rewards that are there.

    Args:
        rewards: f32[..., reward], or packed with `lengths`; NaN where a reward has no value.
        weights: one a reward; all 1 if None.
        lengths: i64[sample] if packed, all equal.

    Returns:
        f32[...], in weighted reward units; NaN where none has a value (see `usable`).

    Raises:
        ValueError: the weights aren't one finite number a reward.
    """
    if lengths is not None:
        if not len(lengths):  # a step without samples
            return rewards
        rewards = rewards.view(len(lengths), -1)
    scale = rewards.new_tensor([1.0] * rewards.shape[-1] if weights is None else weights)
    if scale.shape != rewards.shape[-1:]:
        raise ValueError(
            f"weights must be one a reward, {rewards.shape[-1]}; got {len(scale)}: {weights}"
        )
    if not bool(scale.isfinite().all()):
        raise ValueError(f"weights must be finite; got {weights}")
    missing = rewards.isnan()
    total = (rewards * scale).masked_fill(missing, 0.0).sum(-1)
    return total.masked_fill(missing.all(-1), torch.nan)


def usable(rewards: Tensor) -> Tensor:
    """Return bool[...], where a reward is a finite number."""
    return rewards.isfinite()


def require_finite(
    rewards: Tensor,
    sample_ids: Sequence[str] | None = None,
    *,
    groups: Tensor | None = None,
    what: str = "rewards",
) -> None:
    """Refuse rewards, or `what` else has one number a sample, that are NaN or infinite.

    Raises:
        SampleRefusedError: names the first such sample by `sample_ids`, or by its flat index and
            its place in its group, and says how many there are.
    """
    bad = (~usable(rewards)).flatten().nonzero().flatten().tolist()
    if not bad:
        return
    name = _place(bad[0], groups) if sample_ids is None else sample_ids[bad[0]]
    value = rewards.flatten()[bad[0]].item()
    raise SampleRefusedError(
        f"{what} must be finite numbers; sample {name} has {value} "
        f"({len(bad)} of {rewards.numel()} samples are not finite)",
        bad[0],
    )


def _place(index: int, groups: Tensor | None) -> str:
    if groups is None:
        return str(index)
    number = int((groups[:index] == groups[index]).sum())
    return f"{index}, number {number} of group {int(groups[index])},"
