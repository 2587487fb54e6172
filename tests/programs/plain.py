"""Algorithms again, in plain torch on plain lists: no flowrl, one sequence at a time.

A sample is `(context, tokens, old)`: two lists of token ids, and the log-probability that the
engine gave each token. A batch is a list of groups, a group a list of samples.
"""

from itertools import chain
from types import SimpleNamespace

import torch
from torch.nn.functional import logsigmoid
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

LEARNING_RATE, BETAS, EPS, DECAY, MAX_NORM = 0.05, (0.8, 0.9), 1e-3, 0.1, 0.5


def language_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)


def critic_model(folder):
    """Return a model with one number a token, at first 0."""
    return one_number(AutoModelForTokenClassification, folder)


def reward_model(folder):
    """Return a model with one number a sequence, at first 0."""
    return one_number(AutoModelForSequenceClassification, folder)


def one_number(kind, folder):
    model = kind.from_pretrained(folder, dtype=torch.float64, num_labels=1)
    for x in model.score.parameters():
        torch.nn.init.zeros_(x)
    return model.eval()


def at_tokens(model, sample):
    """Return f64[token, output] at the position before each token of the response."""
    context, tokens, _ = sample
    return model(torch.tensor([context + tokens])).logits[0, len(context) - 1 : -1]


def logprobs(model, sample, temperature=1.0):
    """Return f64[token]."""
    return logprobs_and_entropy(model, sample, temperature)[0]


def logprobs_and_entropy(model, sample, temperature=1.0):
    """Return f64[token] twice, of one forward: inside its norms a gradient is in float32."""
    log_p = (at_tokens(model, sample) / temperature).log_softmax(-1)
    chosen = log_p.gather(-1, torch.tensor(sample[1])[:, None])[:, 0]
    return chosen, -(log_p.exp() * log_p).sum(-1)


class AdamW:
    """Gradients clipped to a norm, then AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

    def __init__(self, model):
        self.weights = [x for x in model.parameters() if x.requires_grad]
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.weights]
        self.steps = 0

    def step(self, loss):
        """Change the weights; return the gradient's norm before clipping."""
        gradients = torch.autograd.grad(loss, self.weights)
        norm = sum(g.square().sum() for g in gradients).sqrt()
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in BETAS)
        for w, g, (m, v) in zip(self.weights, gradients, self.moments, strict=True):
            g = g * min(1, MAX_NORM / (norm + 1e-6))
            m += (1 - BETAS[0]) * (g - m)
            v += (1 - BETAS[1]) * (g * g - v)
            w.data -= LEARNING_RATE * (m / first / ((v / second).sqrt() + EPS) + DECAY * w.data)
        return norm.item()


def surrogate(new, old, advantage, low=0.2, high=0.2):
    """Return PPO's clipped loss of each token."""
    ratio = (new - torch.tensor(old)).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def flat(nested):
    return list(chain.from_iterable(nested))


def grpo(policy, reference, groups, rewards, kl_coef):
    terms = []
    for group, scores in zip(groups, map(torch.tensor, rewards), strict=True):
        advantages = (scores - scores.mean()) / (scores.std() + 1e-6)
        for sample, advantage in zip(group, advantages, strict=True):
            new, anchor = logprobs(policy, sample), logprobs(reference, sample).detach()
            kl = (anchor - new).exp() - 1 - (anchor - new)
            terms.append(surrogate(new, sample[2], advantage) + kl_coef * kl)
    return torch.cat(terms).mean()


def ppo_batch(critic, reference, samples, scores, kl_coef):
    """Return for each sample its old values, its whitened advantages and its returns."""
    rows = []
    for sample, score in zip(samples, scores, strict=True):
        with torch.no_grad():
            penalty = kl_coef * (torch.tensor(sample[2]) - logprobs(reference, sample))
            values = at_tokens(critic, sample)[:, 0]
        rewards = -penalty
        rewards[-1] += score
        rows.append((values, rewards.flip(0).cumsum(0).flip(0)))  # gamma = lambda = 1
    everything = torch.cat([returns - values for values, returns in rows])
    mean, deviation = everything.mean(), (everything.var() + 1e-8).sqrt()
    return [(v, (r - v - mean) / deviation, r) for v, r in rows]


def ppo_losses(policy, critic, samples, rows):
    """Return the losses of policy and critic on a minibatch."""
    policy_terms, errors = [], []
    for sample, (old, advantages, returns) in zip(samples, rows, strict=True):
        policy_terms.append(surrogate(logprobs(policy, sample), sample[2], advantages))
        errors.append(value_error(at_tokens(critic, sample)[:, 0], old, returns))
    return torch.cat(policy_terms).mean(), torch.cat(errors).mean()


def value_error(values, old, returns):
    """Return PPO's clipped loss of each value."""
    held = torch.minimum(torch.maximum(values, old - 0.2), old + 0.2)
    return torch.maximum((values - returns) ** 2, (held - returns) ** 2) / 2


def own_critic_model(folder):
    """Return a language model with a second head: one number a token, at first 0."""
    model = language_model(folder)
    model.value_head = torch.nn.Linear(model.config.hidden_size, 1, dtype=torch.float64)
    for x in model.value_head.parameters():
        torch.nn.init.zeros_(x)
    return model


def own_critic(policy):
    """Return the second head of a model as a model of its own."""
    return lambda ids: SimpleNamespace(
        logits=policy.value_head(policy.model(ids).last_hidden_state)
    )


def own_critic_loss(policy, samples, rows):
    """Return the loss of PPO's policy and critic, where both are heads on one forward."""
    policy_terms, errors = [], []
    for (context, tokens, logged), (old, advantages, returns) in zip(samples, rows, strict=True):
        states = policy.model(torch.tensor([context + tokens])).last_hidden_state
        states = states[0, len(context) - 1 : -1]
        log_p = policy.lm_head(states).log_softmax(-1)
        new = log_p.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        policy_terms.append(surrogate(new, logged, advantages))
        errors.append(value_error(policy.value_head(states)[:, 0], old, returns))
    return torch.cat(policy_terms).mean() + 0.5 * torch.cat(errors).mean()


def dpo(policy, reference, samples, beta):
    """Return the loss of samples that are chosen, rejected, chosen, rejected, ..."""
    ratios = [
        (logprobs(policy, sample) - logprobs(reference, sample).detach()).sum()
        for sample in samples
    ]
    losses = [-logsigmoid(beta * (a - b)) for a, b in zip(ratios[::2], ratios[1::2], strict=True)]
    return torch.stack(losses).mean()


def bradley_terry(model, samples, margin):
    """Return the loss of samples that are chosen, rejected, chosen, rejected, ..."""
    rewards = [model(torch.tensor([c + tokens])).logits[0, 0] for c, tokens, _ in samples]
    pairs = zip(rewards[::2], rewards[1::2], strict=True)
    return torch.stack([-logsigmoid(a - b - margin) for a, b in pairs]).mean()


def rloo(policy, reference, groups, rewards, kl_coef):
    """REINFORCE of whole sequences against the mean of the others."""
    gains = []
    for group, scores in zip(groups, rewards, strict=True):
        costs = [kl_coef * summed_ratio(reference, sample) for sample in group]
        scores = [score - cost for score, cost in zip(scores, costs, strict=True)]
        gains += [s - (sum(scores) - s) / (len(scores) - 1) for s in scores]
    return reinforce_answers(policy, flat(groups), gains)


def summed_ratio(reference, sample):
    """Return the log-ratio of a whole sample, sampler against reference."""
    return (torch.tensor(sample[2]) - logprobs(reference, sample).detach()).sum()


def dr_grpo(policy, groups, rewards, horizon, temperature):
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        for sample, score in zip(group, scores, strict=True):
            advantage = score - sum(scores) / len(scores)
            new = logprobs(policy, sample, temperature)
            terms.append(surrogate(new, sample[2], advantage).sum() / horizon)
    return torch.stack(terms).mean()


def dapo(policy, groups, rewards, max_len, cache_len):
    """Return the loss of groups that all have a signal before long samples are penalised."""
    terms = []
    for group, scores in zip(groups, rewards, strict=True):
        over = [len(sample[1]) - (max_len - cache_len) for sample in group]
        scores = torch.tensor(scores) - torch.tensor(over).clamp(0, cache_len) / cache_len
        for sample, score in zip(group, scores, strict=True):
            advantage = (score - scores.mean()) / (scores.std() + 1e-6)
            terms.append(surrogate(logprobs(policy, sample), sample[2], advantage, 0.2, 0.28))
    return torch.cat(terms).mean()


def reinforce(policy, samples, advantages, entropy_coef):
    """REINFORCE of tokens, with an entropy bonus."""
    terms = []
    for sample, advantage in zip(samples, advantages, strict=True):
        new, entropy = logprobs_and_entropy(policy, sample)
        terms.append(-advantage * new - entropy_coef * entropy)
    return torch.cat(terms).mean()


def reinforce_answers(policy, samples, advantages):
    """REINFORCE of whole sequences."""
    pairs = zip(samples, advantages, strict=True)
    return torch.stack([-a * logprobs(policy, sample).sum() for sample, a in pairs]).mean()


def sft(policy, samples):
    """Return the loss of samples whose first token is not trained."""
    return -torch.cat([logprobs(policy, sample)[1:] for sample in samples]).mean()
