"""Policy gradients in plain torch, weighted for what engine and trainer differ by."""

import torch

from tests.programs.plain import (
    at_tokens,
    flat,
    logprobs,
    ppo_batch,
    surrogate,
    value_error,
)
from tests.programs.plain_more import centred, kl_k3


def weights(trained, sampled, level, mode, low, high):
    """Return the weight of each token of a sample."""
    gap = trained - torch.tensor(sampled)
    if level == "sequence":
        gap = gap.sum().expand_as(gap)
    ratio = gap.exp()
    if mode == "truncate":
        return ratio.clamp(low, high)
    return torch.where((ratio >= (low or 0)) & (ratio <= high), ratio, 0.0)


def grpo(policy, reference, groups, rewards, *options):
    """Return the loss of an update of the version that sampled: the ratio is 1, not its gradient."""
    terms = []
    for sample, gain in zip(flat(groups), centred(rewards), strict=True):
        new, anchor = logprobs(policy, sample), logprobs(reference, sample).detach()
        weight = weights(new.detach(), sample[2], *options)
        ratio = (new - new.detach()).exp()
        terms.append(weight * -ratio * gain + 0.3 * kl_k3(new, anchor))
    return torch.cat(terms).mean()


def rloo(policy, reference, groups, rewards, *options):
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        for sample, score in zip(group, scores, strict=True):
            gain = score - (sum(scores) - score) / (len(scores) - 1)
            new = logprobs(policy, sample)
            weight = weights(new.detach(), sample[2], *options)
            terms.append((-gain * weight * new).sum())
    return torch.stack(terms).mean()


def ppo(policy, critic, reference, samples, scores, *options):
    """Return a function that gives the losses of policy and critic in each epoch."""
    trained = [logprobs(policy, sample).detach() for sample in samples]
    rows = ppo_batch(critic, reference, samples, scores, 0.2)

    def losses():
        policy_terms, errors = [], []
        for sample, before, (old, gain, returns) in zip(samples, trained, rows, strict=True):
            weight = weights(before, sample[2], *options)
            policy_terms.append(weight * surrogate(logprobs(policy, sample), before.tolist(), gain))
            errors.append(value_error(at_tokens(critic, sample)[:, 0], old, returns))
        return torch.cat(policy_terms).mean(), torch.cat(errors).mean()

    return losses
