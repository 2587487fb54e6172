"""PPO and what is made of it: the weights after two steps are those of plain torch."""

from functools import partial

import attrs
import numpy as np
import pytest

from programs.pf_ppo import pf_ppo
from programs.ppo import ppo
from programs.ppo_full import ppo_full
from tests.programs import plain, plain_ppo
from tests.programs.against import assert_same, measured


@attrs.define
class Learner:
    """Policy and critic, trained in plain torch in the minibatches that a run has drawn."""

    policy: object
    critic: object
    turns: object
    done: list = attrs.field(factory=list)
    optimisers: list = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.optimisers = [plain.AdamW(self.policy), plain.AdamW(self.critic)]

    def step(self, samples, rows, losses, *, turns, epochs=2):
        """Take the turns of one step, in which each sample comes once an epoch."""
        place = {(tuple(c), tuple(t)): i for i, (c, t, _) in enumerate(samples)}
        seen, self.done = [], []
        for mine, others in (next(self.turns) for _ in range(turns)):
            assert mine == others
            chosen = [place[tuple(c), tuple(t)] for c, t, _ in mine]
            both = losses(samples=[samples[i] for i in chosen], rows=[rows[i] for i in chosen])
            pairs = zip(both, self.optimisers, strict=True)
            self.done.append([x for loss, by in pairs for x in (loss.item(), by.step(loss))])
            seen += chosen
        assert sorted(seen) == sorted([*range(len(samples))] * epochs)

    def assert_same(self, metrics, weights):
        last = pytest.approx(np.mean(self.done, axis=0).tolist(), abs=1e-9)
        assert [*measured(metrics), *measured(metrics, "critic")] == last
        assert_same(weights, self.policy)
        assert_same(weights, self.critic, "critic")


@pytest.fixture
def learner(policy, model_folder):
    def learner(record):
        turns = zip(record.updated("policy"), record.updated("critic"), strict=True)
        return Learner(policy, plain.critic_model(model_folder("llama")), iter(turns))

    return learner


def test_ppo_of_two_epochs_in_minibatches_steps_as_plain_torch_does(ran, reference, learner):
    record, metrics, weights = ran(ppo, minibatch=3, epochs=2, kl_coef=0.2)

    mine = learner(record)
    for groups, rewards in zip(record.groups, record.rewards, strict=True):
        samples = plain.flat(groups)
        rows = plain.ppo_batch(mine.critic, reference, samples, plain.flat(rewards), 0.2)
        mine.step(samples, rows, partial(plain.ppo_losses, mine.policy, mine.critic), turns=4)

    mine.assert_same(metrics, weights)


@pytest.mark.parametrize("kl_in_loss", [False, True])
def test_ppo_with_all_its_options_steps_as_plain_torch_does(kl_in_loss, ran, reference, learner):
    record, metrics, weights = ran(
        ppo_full,
        samples=2,
        minibatch=4,
        gamma=plain_ppo.GAMMA,
        lam=plain_ppo.LAMBDA,
        clip_high=0.3,
        dual_clip=plain_ppo.DUAL,
        value_clip=None,
        kl_coef=0.2,
        kl_in_loss=kl_in_loss,
        target_kl=plain_ppo.TARGET,
        horizon=plain_ppo.HORIZON,
    )

    mine, kl_coef = learner(record), 0.2
    for groups, rewards in zip(record.groups, record.rewards, strict=True):
        samples = plain.flat(groups)
        in_reward, in_loss = (0, kl_coef) if kl_in_loss else (kl_coef, 0)
        rows = plain_ppo.full_batch(mine.critic, reference, samples, plain.flat(rewards), in_reward)
        losses = partial(
            plain_ppo.full_losses, mine.policy, mine.critic, reference, kl_coef=in_loss
        )
        mine.step(samples, rows, losses, turns=4)
        used, kl_coef = kl_coef, plain_ppo.next_coefficient(reference, samples, kl_coef)

    assert used != 0.2
    assert metrics["kl_coef"] == pytest.approx(used, abs=1e-9)
    mine.assert_same(metrics, weights)


def test_ppo_on_the_best_and_worst_samples_of_several_steps_steps_as_plain_torch_does(
    ran, reference, learner
):
    record, metrics, weights = ran(
        pf_ppo, samples=3, keep="best_worst", capacity=6, minibatch=4, kl_coef=0.2
    )

    mine, kept = learner(record), []
    for groups, rewards in zip(record.groups, record.rewards, strict=True):
        kept = [*kept, *plain_ppo.best_and_worst(groups, rewards)][-6:]
        samples, scores = zip(*plain.flat(kept), strict=True)
        rows = plain.ppo_batch(mine.critic, reference, samples, scores, 0.2)
        losses = partial(plain.ppo_losses, mine.policy, mine.critic)
        mine.step(samples, rows, losses, turns=len(samples) // 2)

    assert len(kept) == 6
    mine.assert_same(metrics, weights)
