"""A program that trains on the rows of this step and of those before."""

import flowrl as fl
from flowrl import ops


@fl.program
def replayed(
    policy: fl.Model,
    prompts: fl.Prompts,
    replay: fl.Carry = fl.Carry(fl.Buffer()),
    *,
    capacity=6,
):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    replay = ops.append(replay, ops.record(rollouts, rewards=rewards), capacity=capacity)
    batch = replay.rows
    advantages = batch.rewards - batch.rewards.mean()
    age = (batch.version.float().max() - batch.version.float()).max()

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, batch.logprobs, advantages)
        return ops.token_mean(surrogate, batch.mask)

    policy, stats = ops.update(policy, loss, batch)
    samples = ops.count(batch.rewards == batch.rewards)
    return policy, replay, stats | {"samples": samples.float(), "age": age}
