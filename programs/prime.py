"""Process Reinforcement through Implicit Rewards (Cui et al. 2025, arXiv:2502.01456).

The reward model is a language model that starts as the policy does. Its log-ratio to the reference,
summed over an answer, learns whether the answer is right; each token's own term is its reward.
Left out of the paper: the filter of prompts by accuracy (dapo.py draws until there is a signal); the
authors' code also whitens the advantages.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def prime(
    policy: fl.Model, reward_model: fl.Model, reference: fl.Model, prompts: fl.Prompts,
    *, samples=4, clip=0.2, beta=0.05, gamma=1.0, threshold=0.5,
):
    """Reinforce by process rewards that outcomes alone have taught; a reward above `threshold` is right."""
    rollouts, outcomes = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor, right = ops.logprobs(reference, rollouts), (outcomes > threshold).float()
    process = beta * (ops.logprobs(reward_model, rollouts) - anchor)
    means = process.mean(over="token", mask=rollouts.mask)             # f32[prompt, sample]
    others = means - ops.leave_one_out(means)                          # the mean of the siblings' means
    advantages = ops.discounted_returns(process - others, rollouts.mask, gamma=gamma) + ops.leave_one_out(outcomes)

    def outcome_loss(new):
        judged = (beta * (new.logprobs - anchor)).sum(over="token", mask=rollouts.mask)
        return ops.binary_cross_entropy(judged, right).mean(), {"accuracy": ((judged > 0).float() == right).float().mean()}

    def loss(new):
        return ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip), rollouts.mask)

    reward_model, learnt = ops.update(reward_model, outcome_loss, rollouts)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, reward_model, stats | learnt
