"""PPO with its options, and on filtered samples of several steps, in plain torch on plain lists."""

import torch

from tests.programs.plain import at_tokens, logprobs, surrogate

TARGET, HORIZON, GAMMA, LAMBDA, DUAL = 0.5, 20, 0.9, 0.8, 1.5


def full_batch(critic, reference, samples, scores, kl_coef):
    """Return for each sample its old values, its whitened advantages and its returns."""
    rows = []
    for sample, score in zip(samples, scores, strict=True):
        with torch.no_grad():
            rewards = -kl_coef * (torch.tensor(sample[2]) - logprobs(reference, sample))
            values = at_tokens(critic, sample)[:, 0]
        rewards[-1] += score
        ahead, advantages = 0.0, []
        for reward, value, after in reversed(
            list(zip(rewards, values, [*values[1:], 0.0], strict=True))
        ):
            ahead = reward + GAMMA * after - value + GAMMA * LAMBDA * ahead
            advantages.insert(0, ahead)
        rows.append((values, torch.stack(advantages)))
    everything = torch.cat([advantages for _, advantages in rows])
    mean, deviation = everything.mean(), (everything.var() + 1e-8).sqrt()
    return [(v, (a - mean) / deviation, a + v) for v, a in rows]


def full_losses(policy, critic, reference, samples, rows, kl_coef):
    """Return the losses of policy, less its KL, and of a critic whose values aren't clipped."""
    policy_terms, errors = [], []
    for sample, (_, advantages, returns) in zip(samples, rows, strict=True):
        new, anchor = logprobs(policy, sample), logprobs(reference, sample).detach()
        terms = surrogate(new, sample[2], advantages, 0.2, 0.3)
        held = torch.minimum(terms, -DUAL * advantages)
        kl = (anchor - new).exp() - 1 - (anchor - new)
        policy_terms.append(torch.where(advantages < 0, held, terms) + kl_coef * kl)
        errors.append((at_tokens(critic, sample)[:, 0] - returns) ** 2 / 2)
    return torch.cat(policy_terms).mean(), torch.cat(errors).mean()


def next_coefficient(reference, samples, kl_coef):
    """Return the KL coefficient after a step on these samples."""
    summed = [(torch.tensor(s[2]) - logprobs(reference, s).detach()).sum().item() for s in samples]
    error = sum(summed) / len(summed) / TARGET - 1
    return kl_coef * (1 + max(-0.2, min(0.2, error)) * len(samples) / HORIZON)


def best_and_worst(groups, rewards):
    """Return two samples of each prompt, and their rewards."""
    kept = []
    for group, scores in zip(groups, rewards, strict=True):
        places = range(len(scores))
        best = max(places, key=lambda i: scores[i])
        worst = min((i for i in places if i != best), key=lambda i: scores[i])
        kept.append([(group[i], scores[i]) for i in sorted((best, worst))])
    return kept
