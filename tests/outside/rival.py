"""A policy that learns to beat a rival, where the two differ."""

import flowrl as fl
from flowrl import ops


@fl.op("f32[..., token], f32[..., token] -> f32[..., token]", per="token")
def lead(own, other, *, sharpness=1.0):
    """Return how much likelier one model finds a token than another: in (0, 1), 1/2 if equal."""
    return ((own - other) * sharpness).sigmoid()


@fl.program
def rival(policy: fl.Model, rival: fl.Model, prompts: fl.Prompts, *, samples=4, sharpness=1.0):
    """Reinforce answers by how far they beat the rival's, at the tokens that set them apart."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    _, others = ops.score("reward", ops.generate(rival, prompts, n=2))
    bar = ops.align(others, to=rollouts).max(over="sample")  # f32[prompt]
    apart = lead(rollouts.logprobs, ops.logprobs(rival, rollouts), sharpness=sharpness)
    advantages = (rewards - bar) * apart  # f32[prompt, sample, token]

    def loss(new):
        return ops.token_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats | {"apart": apart.mean(mask=rollouts.mask), "bar": bar.mean()}
