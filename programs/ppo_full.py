"""PPO with each of its options (Schulman et al. 2017, arXiv:1707.06347).

Clipped values, a second clip of negative advantages (Ye et al. 2020, arXiv:1912.09729), a KL to the
reference in the reward or in the loss, with a coefficient that follows a target (Ziegler et al. 2019,
arXiv:1909.08593). Left out of the papers: the entropy bonus of games; critic and policy in one model.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def ppo_full(
    policy: fl.Model, critic: fl.Model, reference: fl.Model, prompts: fl.Prompts,
    kl_factor: fl.Carry = fl.Carry(1.0),
    *, samples=1, epochs=2, minibatch=64, gamma=1.0, lam=0.95, clip=0.2, clip_high=None, dual_clip=3.0,
    value_clip=0.2, kl_coef=0.05, kl_in_loss=False, target_kl=None, horizon=10000,
):
    """PPO; None turns a clip off, or the target: then the KL coefficient stays `kl_coef`."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    values, anchor = ops.values(critic, rollouts), ops.logprobs(reference, rollouts)
    distance, coefficient = rollouts.logprobs - anchor, kl_coef * kl_factor
    penalty = None if kl_in_loss else coefficient * distance
    rewards = ops.token_rewards(scores, rollouts.mask, penalty)
    advantages, returns = ops.gae(rewards, values, rollouts.mask, gamma=gamma, lam=lam)
    batch = ops.record(
        rollouts, advantages=ops.whiten(advantages, rollouts.mask), returns=returns, values=values, anchor=anchor)

    def body(models, mb):
        def loss(new):
            terms = ops.clipped_surrogate(
                new.logprobs, mb.logprobs, mb.advantages, clip=clip, clip_high=clip_high, dual_clip=dual_clip)
            if kl_in_loss:
                terms = terms + coefficient * ops.kl(new.logprobs, mb.anchor)
            return ops.token_mean(terms, mb.mask)

        policy, a = ops.update(models[0], loss, mb)
        critic, c = ops.update(models[1], lambda new: ops.token_mean(
            ops.clipped_value(new.values, mb.values, mb.returns, clip=value_clip), mb.mask), mb)
        return (policy, critic), a | c

    (policy, critic), stats = ops.scan(body, (policy, critic), ops.minibatches(batch, sequences=minibatch, epochs=epochs))
    summed = distance.sum(over="token", mask=rollouts.mask)            # f32[prompt, sample], in nats
    if target_kl is not None:
        kl_factor = ops.adaptive_kl(kl_factor, summed, target=target_kl, horizon=horizon)
    return policy, critic, kl_factor, stats | {"kl": summed.mean(), "kl_coef": coefficient}
