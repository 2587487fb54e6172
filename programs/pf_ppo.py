"""PPO on the samples whose rewards can be relied on (Zhang et al. 2024, arXiv:2409.06957).

The paper draws one of a prompt's samples: the best, or as often one of the others. Here both are kept,
which is the same on average. Its buffer is filled anew in each step; here it may hold several steps
(`capacity`), where ratios are to the versions that sampled, values and advantages of this step's critic.
Left out: choosing the filter by how well rewards then agree with a better judge.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def pf_ppo(
    policy: fl.Model, critic: fl.Model, reference: fl.Model, prompts: fl.Prompts,
    replay: fl.Carry = fl.Carry(fl.Buffer()),
    *, samples=5, keep="best_random", capacity=128, epochs=2, minibatch=64, clip=0.2, kl_coef=0.05,
):
    """PPO on the best and another of several samples, replayed; `capacity` counts prompts."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    fresh = ops.record(rollouts, scores=scores)
    fresh = ops.select(fresh, where=ops.policy_filter(scores, keep=keep))
    fresh = ops.record(fresh, anchor=ops.logprobs(reference, fresh))
    replay = ops.append(replay, fresh, capacity=capacity)
    old = replay.rows                                      # of this step and those before

    values = ops.values(critic, old)
    rewards = ops.token_rewards(old.scores, old.mask, kl_coef * (old.logprobs - old.anchor))
    advantages, returns = ops.gae(rewards, values, old.mask)
    batch = ops.record(old, advantages=ops.whiten(advantages, old.mask), returns=returns, values=values)

    def body(models, mb):
        policy, a = ops.update(models[0], lambda new: ops.token_mean(
            ops.clipped_surrogate(new.logprobs, mb.logprobs, mb.advantages, clip=clip), mb.mask), mb)
        critic, c = ops.update(models[1], lambda new: ops.token_mean(
            ops.clipped_value(new.values, mb.values, mb.returns), mb.mask), mb)
        return (policy, critic), a | c

    (policy, critic), stats = ops.scan(body, (policy, critic), ops.minibatches(batch, sequences=minibatch, epochs=epochs))
    return policy, critic, replay, stats | {"kept": fresh.scores.mean()}
