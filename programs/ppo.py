"""Proximal Policy Optimization of language models (Schulman et al. 2017, arXiv:1707.06347)."""

import flowrl as fl
from flowrl import ops


@fl.program
def ppo(policy: fl.Model, critic: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, epochs=2, minibatch=64, clip=0.2, kl_coef=0.05):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts))
    values, anchor = ops.values(critic, rollouts), ops.logprobs(reference, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask, kl_coef * (rollouts.logprobs - anchor))
    advantages, returns = ops.gae(rewards, values, rollouts.mask)
    batch = ops.record(rollouts, advantages=ops.whiten(advantages, rollouts.mask), returns=returns, values=values)

    def body(models, mb):                                  # mb: the record's fields on fresh axes
        policy, a = ops.update(models[0], lambda new: ops.token_mean(
            ops.clipped_surrogate(new.logprobs, mb.logprobs, mb.advantages, clip=clip), mb.mask), mb)
        critic, c = ops.update(models[1], lambda new: ops.token_mean(
            ops.clipped_value(new.values, mb.values, mb.returns), mb.mask), mb)
        return (policy, critic), a | c

    (policy, critic), stats = ops.scan(body, (policy, critic), ops.minibatches(batch, sequences=minibatch, epochs=epochs))
    return policy, critic, stats
