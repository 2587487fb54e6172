"""More losses in plain torch: of policy, reference, and one batch of groups and their rewards."""

from types import SimpleNamespace

import torch
from torch.nn.functional import logsigmoid

from tests.programs.plain import (
    at_tokens,
    flat,
    logprobs,
    ppo_batch,
    reinforce_answers,
    surrogate,
)


def centred(rewards, *, by_std=True):
    """Return the group-relative advantage of each sample, in one list."""
    gains = []
    for scores in map(torch.tensor, rewards):
        gains += (scores - scores.mean()) / (scores.std() + 1e-6 if by_std else 1)
    return gains


def kl_k3(new, anchor):
    return (anchor - new).exp() - 1 - (anchor - new)


def gspo(policy, reference, groups, rewards):
    terms = []
    for sample, gain in zip(flat(groups), centred(rewards), strict=True):
        ratio = (logprobs(policy, sample) - torch.tensor(sample[2])).mean().exp()
        terms.append(-torch.minimum(ratio * gain, ratio.clamp(1 - 0.5, 1 + 0.7) * gain))
    return torch.stack(terms).mean()


def cispo(policy, reference, groups, rewards):
    terms = []
    for sample, gain in zip(flat(groups), centred(rewards), strict=True):
        new = logprobs(policy, sample)
        ratio = (new - torch.tensor(sample[2])).exp().clamp(max=1 + 0.5)
        terms.append(-ratio.detach() * gain * new)
    return torch.cat(terms).mean()


def clip_cov(policy, reference, groups, rewards):
    """Return the loss where every token is drawn that may be."""
    samples = flat(groups)
    new, old, gain, covariance = covariances(policy, samples, centred(rewards))
    ratio = (new - old).exp()
    free, held = ratio * gain, ratio.clamp(1 - 0.2, 1 + 0.2) * gain
    drawn = (free <= held) & (covariance >= 0) & (covariance <= 50)
    return (~drawn * -torch.minimum(free, held)).mean()


def kl_cov(policy, reference, groups, rewards):
    new, old, gain, covariance = covariances(policy, flat(groups), centred(rewards))
    penalised = covariance >= covariance.topk(max(1, len(new) // 5)).values[-1]
    return (-(new - old).exp() * gain + penalised * 0.3 * (new - old).abs()).mean()


def covariances(policy, samples, gains):
    """Return new, old, gain and covariance of all tokens."""
    new = torch.cat([logprobs(policy, sample) for sample in samples])
    old = torch.tensor(flat(sample[2] for sample in samples))
    gain = torch.stack(flat([g] * len(s[1]) for s, g in zip(samples, gains, strict=True)))
    return new, old, gain, (new - new.mean()) * (gain - gain.mean())


def gdpo(policy, reference, groups, rewards):
    """Return the loss of two rewards that are the same, one weighted 1 and one 0.5."""
    sums = 1.5 * torch.stack(centred(rewards))
    gains = (sums - sums.mean()) / (sums.std() + 1e-6)
    pairs = zip(flat(groups), gains, strict=True)
    return torch.cat([surrogate(logprobs(policy, s), s[2], gain) for s, gain in pairs]).mean()


def otb(policy, reference, groups, rewards):
    """Return the loss of rewards that come with the last token, so that each return is the reward."""
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        weights = [energies(policy, sample) for sample in group]
        for sample, score in zip(group, scores, strict=True):
            gains = [score - optimal_baseline(weights, scores, k) for k in range(len(sample[1]))]
            terms.append(-(torch.tensor(gains) * logprobs(policy, sample)).sum())
    return torch.stack(terms).mean()


def energies(policy, sample):
    """Return the squared norm of the gradient in the logits, summed up to each token."""
    collision = at_tokens(policy, sample).softmax(-1).square().sum(-1)
    return (1 - 2 * torch.tensor(sample[2]).exp() + collision).cumsum(0).tolist()


def optimal_baseline(weights, scores, k):
    """Return the baseline of the k-th token: the mean return, weighted by the energies there."""
    there = [(w[k], score) for w, score in zip(weights, scores, strict=True) if k < len(w)]
    return sum(w * score for w, score in there) / sum(w for w, _ in there)


def opo(policy, reference, groups, rewards):
    gains = []
    for group, scores in zip(groups, rewards, strict=True):
        lengths = [len(sample[1]) for sample in group]
        total = sum(n * score for n, score in zip(lengths, scores, strict=True))
        gains += [score - total / sum(lengths) for score in scores]
    return reinforce_answers(policy, flat(groups), gains)


def reinforce_pp(policy, reference, groups, rewards):
    """PPO's advantages, of a critic that always says 0."""
    samples = flat(groups)
    zero = lambda ids: SimpleNamespace(logits=torch.zeros(*ids.shape, 1))
    rows = ppo_batch(zero, reference, samples, flat(rewards), 0.2)
    pairs = zip(samples, rows, strict=True)
    return torch.cat(
        [surrogate(logprobs(policy, s), s[2], gain) for s, (_, gain, _) in pairs]
    ).mean()


def reinforce_pp_baseline(policy, reference, groups, rewards):
    samples, gains = flat(groups), centred(rewards, by_std=False)
    tokens = torch.stack(flat([g] * len(s[1]) for s, g in zip(samples, gains, strict=True)))
    terms = []
    for sample, gain in zip(samples, gains, strict=True):
        gain = (gain - tokens.mean()) / (tokens.var() + 1e-8).sqrt()
        new, anchor = logprobs(policy, sample), logprobs(reference, sample).detach()
        terms.append(surrogate(new, sample[2], gain) + 0.3 * (new - anchor) ** 2 / 2)
    return torch.cat(terms).mean()


def raft(policy, reference, groups, rewards):
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        best = [sample for sample, score in zip(group, scores, strict=True) if score == max(scores)]
        terms += [-logprobs(policy, sample) for sample in best]
    return torch.cat(terms).mean()


def online_dpo(policy, reference, groups, rewards):
    losses = []
    for group, (first, second) in zip(groups, rewards, strict=True):
        a, b = (
            (logprobs(policy, sample) - logprobs(reference, sample).detach()).sum()
            for sample in group
        )
        losses.append((first != second) * -logsigmoid(0.2 * (a - b if first > second else b - a)))
    return torch.stack(losses).mean()


def distill(policy, teacher, groups, rewards):
    """Return the value of k3 with the gradient of the reverse KL."""
    terms = []
    for sample in flat(groups):
        new, taught = logprobs(policy, sample), logprobs(teacher, sample)
        slope = (new - torch.tensor(sample[2])).exp() * (new - taught)
        terms.append(kl_k3(new, taught).detach() + slope.detach() * (new - new.detach()))
    return torch.cat(terms).mean()


def process_rewards(model, reference, sample, beta):
    """Return the log-ratio of each token, times beta, with its gradient in the model."""
    return beta * (logprobs(model, sample) - logprobs(reference, sample).detach())


def prime(policy, model, reference, groups, rewards, beta, gamma):
    """Return the loss of the policy; the model is that before its own step."""
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        process = [process_rewards(model, reference, s, beta).detach() for s in group]
        for i, sample in enumerate(group):
            others = [j for j in range(len(group)) if j != i]
            earned = process[i] - sum(process[j].mean() for j in others) / len(others)
            gain = scores[i] - sum(scores[j] for j in others) / len(others)
            returns = [
                sum(gamma ** (s - t) * earned[s] for s in range(t, len(earned)))
                for t in range(len(earned))
            ]
            advantages = torch.stack(returns) + gain
            terms.append(surrogate(logprobs(policy, sample), sample[2], advantages))
    return torch.cat(terms).mean()


def outcome_loss(model, reference, groups, rewards, beta):
    """Return the cross-entropy of whether each answer is right."""
    losses = []
    for sample, score in zip(flat(groups), flat(rewards), strict=True):
        judged = process_rewards(model, reference, sample, beta).sum()
        losses.append(-logsigmoid(judged if score > 0.5 else -judged))
    return torch.stack(losses).mean()
