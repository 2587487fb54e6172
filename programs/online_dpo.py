"""Online DPO: direct preferences of the policy's own answers (Guo et al. 2024, arXiv:2402.04792).

Left out of the paper: the language model that annotates; any reward will do. Two answers of equal
reward prefer nothing, and their loss is 0.
"""

import flowrl as fl
from flowrl import ops


@fl.op("f32[prompt, sample], f32[prompt, sample] -> f32[prompt, sample]", per="group")
def better_first(x, rewards):
    return x[rewards.argsort(descending=True)]


@fl.program
def online_dpo(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, beta=0.1):
    """Prefer the better of two samples of each prompt, relative to the reference."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    anchor, decided = ops.logprobs(reference, rollouts), ops.has_signal(rewards).float()

    def loss(new):                                         # the pair couples two sequences: two passes
        ratios = (new.logprobs - anchor).sum(over="token", mask=rollouts.mask)
        return (decided * ops.dpo_loss(better_first(ratios, rewards), beta=beta)).mean()

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats | {"decided": decided.mean()}
