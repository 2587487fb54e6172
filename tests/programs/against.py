"""What a run of a program did, to be followed in plain torch."""

import attrs
import pytest
from torch.testing import assert_close

from flowrl.runtime.host import Scores
from flowrl.runtime.training.schedule import TrainerOptions
from tests.programs import plain
from tests.runtime import steps

OPTIONS = TrainerOptions(
    learning_rate=plain.LEARNING_RATE,
    betas=plain.BETAS,
    eps=plain.EPS,
    weight_decay=plain.DECAY,
    max_grad_norm=plain.MAX_NORM,
    tokens_per_microbatch=40,
)


class Record(steps.FixedTokens):
    """What was sampled and scored, a batch a call; and the samples of each update, by role."""

    def __init__(self):
        self.groups, self.rewards, self.updates = [], [], []

    def generate(self, requests, sampling):
        done = super().generate(requests, sampling)
        pairs = zip(requests, done, strict=True)
        self.groups.append(
            [[(list(r.prompt), c.tokens, c.logprobs) for c in answers] for r, answers in pairs]
        )
        return done

    def sample(self, seed):
        """Return a sample that the policy likes more than the sampler: ratios beyond both bounds."""
        done = super().sample(seed)
        return attrs.evolve(done, logprobs=[x - 1 for x in done.logprobs])

    def score(self, functions, rows, completions, samples, step, given):
        """Count vowels, up to 2: some groups have no signal."""
        found = [float(min(2, sum(c in "aeiouAEIOU" for c in text))) for text in completions]
        answers = iter(found)
        self.rewards.append([[next(answers) for _ in group] for group in self.groups[-1]])
        return Scores([found] * len(functions), {})

    def updated(self, role):
        """Return the samples of each update; `old` is nothing to go by for data."""
        return [samples for name, samples in self.updates if name == role]


def assert_same(weights, model, role="policy"):
    theirs = dict(model.named_parameters())
    assert theirs.keys() == {name for r, name in weights if r == role}
    for name, x in theirs.items():
        assert_close(weights[role, name], x.detach(), atol=1e-9, rtol=0)


def follow(model, losses):
    """Take a step on each loss, made when its turn comes; return the last loss and its norm."""
    optimiser = plain.AdamW(model)
    for make in losses:
        loss = make()
        norm = optimiser.step(loss)
    return pytest.approx((loss.item(), norm), abs=1e-9)


def measured(metrics, role="policy"):
    return metrics[f"{role}/loss"], metrics[f"{role}/grad_norm"]
