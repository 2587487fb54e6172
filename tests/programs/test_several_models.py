"""Two reward models and two critics, of four families, trained in one program."""

import pytest
import torch

import flowrl as fl
from flowrl import ops
from tests.programs import plain
from tests.programs.against import OPTIONS, Record, assert_same, measured
from tests.runtime import steps
from tests.runtime.conftest import CLASSIFIERS, classifier_folder

__all__ = ["classifier_folder"]


@fl.program
def twins(
    policy: fl.Model, first: fl.Model, second: fl.Model, judge: fl.Model, guide: fl.Model, prompts: fl.Prompts
):  # fmt: skip
    rollouts = ops.generate(policy, prompts, n=2)
    _, scores = ops.score(judge, rollouts)
    _, process = ops.score(guide, rollouts, per="token")
    old, older = ops.values(first, rollouts), ops.values(second, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask) + process
    advantages, returns = ops.gae(rewards, ops.minimum(old, older), rollouts.mask)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages)
        return ops.token_mean(surrogate, rollouts.mask)

    def error(values):
        return lambda new: ops.token_mean(
            ops.clipped_value(new.values, values, returns), rollouts.mask
        )

    def foresee(new):
        return ops.token_mean((new.token_rewards - returns) ** 2, rollouts.mask)

    policy, a = ops.update(policy, loss, rollouts)
    first, b = ops.update(first, error(old), rollouts)
    second, c = ops.update(second, error(older), rollouts)
    judge, d = ops.update(judge, lambda new: ((new.rewards - 1) ** 2).mean(), rollouts)
    guide, e = ops.update(guide, foresee, rollouts)
    return policy, first, second, judge, guide, a | b | c | d | e


def values_of(critic, sample):
    """Return the head's number before each token, whatever class the critic is of."""
    context, tokens, _ = sample
    states = critic.base_model(torch.tensor([context + tokens])).last_hidden_state
    return critic.score(states)[0, len(context) - 1 : -1, 0]


def losses(policy, first, second, judge, guide, samples):
    """Return the losses of the policy, of both critics and of both reward models."""
    terms = []
    for sample in samples:
        context, tokens, logged = sample
        ids = torch.tensor([context + tokens])
        process, score = guide(ids).logits[0, len(context) :, 0], judge(ids).logits[0]
        rewards = process.detach().clone()
        rewards[-1] += score[0].detach()
        returns = rewards.flip(0).cumsum(0).flip(0)  # gamma = lambda = 1
        values = [values_of(critic, sample) for critic in (first, second)]
        advantages = returns - torch.minimum(*values).detach()
        surrogate = plain.surrogate(plain.logprobs(policy, sample), logged, advantages)
        errors = [(x - returns) ** 2 / 2 for x in values]
        terms.append([surrogate, *errors, (score - 1) ** 2, (process - returns) ** 2])
    return [torch.cat(term).mean() for term in zip(*terms, strict=True)]


def test_two_reward_models_and_two_critics_step_as_plain_torch_does(
    float64, model_folder, classifier_folder, tokenizer
):
    folders = {
        "policy": model_folder("llama"),
        "first": model_folder("qwen2"),
        "second": classifier_folder("gpt2", "sequences"),
        "judge": classifier_folder("qwen2", "sequences"),
        "guide": classifier_folder("gpt_neox", "tokens"),
    }
    roles = {n: steps.role(f, dtype="float64", options=OPTIONS) for n, f in folders.items()}
    traced, record = fl.trace(twins), Record()
    made = steps.executor(traced, roles, tokenizer, generator=record)

    carry, metrics = steps.run(made, steps.cursors(traced, tokenizer), steps=2)

    second, judge, guide = (
        CLASSIFIERS[of].from_pretrained(folders[role], dtype=torch.float64).eval()
        for role, of in (("second", "sequences"), ("judge", "sequences"), ("guide", "tokens"))
    )
    first = plain.critic_model(folders["first"])
    everyone = plain.language_model(folders["policy"]), first, second, judge, guide
    ours = dict(zip(folders, everyone, strict=True))
    optimisers = [plain.AdamW(model) for model in ours.values()]
    for groups in record.groups:
        batch = losses(*everyone, plain.flat(groups))
        last = [(loss.item(), o.step(loss)) for loss, o in zip(batch, optimisers, strict=True)]
    for (role, model), numbers in zip(ours.items(), last, strict=True):
        assert measured(metrics, role) == pytest.approx(numbers, abs=1e-9)
        assert_same(steps.weights(carry), model, role)
