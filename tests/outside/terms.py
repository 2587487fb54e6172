"""GRPO with a second reward, a length penalty and an entropy bonus that fades."""

import flowrl as fl
from flowrl import ops


@fl.program
def terms(
    policy: fl.Model,
    prompts: fl.Prompts,
    bonus: fl.Carry = fl.Carry(0.01),
    *,
    samples=4,
    clip=0.2,
    weights=(1.0, 0.2),
    price=1e-3,
    fade=0.99,
    floor=1e-3,
):
    drawn = ops.generate(policy, prompts, n=samples)
    rollouts, scores = ops.score("rewards", drawn, names=("reward", "brief"))
    lengths = ops.token_counts(rollouts.mask)  # f32[prompt, sample]
    advantages = ops.gdpo(scores, weights=weights) - price * (lengths - lengths.mean(over="sample"))

    def loss(new):
        gain = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip)
        return ops.token_mean(gain - bonus * new.entropy, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return (
        policy,
        ops.maximum(bonus * fade, floor),
        stats | {"length": lengths.mean(), "bonus": bonus},
    )
