"""Rewards that models give, on Ray."""

import pytest
import ray

from flowrl.runtime.pools.ray_executor import RayExecutor
from tests.runtime.ray.conftest import HELD_OUT, known
from tests.train.judges import make_judge, merging_tokenizer, piped
from tests.train.test_reward_models import HANDED, HELPFUL, JUDGE, REINFORCE

POOLS = """
[cluster]
executor = "ray"
[cluster.pools.train]
cpus = 0.25
[cluster.pools.judges]
roles = ["{role}"]
cpus = 0.25
"""
DIVIDED = """
[engines.helpful.train]
shard = "fsdp2"
"""


@pytest.fixture
def judged(heldout, kept):
    """A run's folder with a reward model of another tokenizer; runs take the session's workers."""
    make_judge(heldout.path / "judge", merging_tokenizer())
    (heldout.path / "reinforce.py").write_text(REINFORCE)
    (heldout.path / "handed.py").write_text(HANDED)
    return heldout


def test_a_reward_model_in_a_pool_of_its_own_scores_as_in_one_process(judged):
    parts = {"reward": HELPFUL, "added": HELD_OUT + POOLS.format(role="helpful")}

    there = judged.run("reinforce.py", "log.samples=8", **parts)

    here = judged.run("reinforce.py", "train.folder=here", "cluster.executor=local", **parts)
    texts = [record["prompt"] + record["completion"] for record in judged.sampled]
    found = [record["rewards"]["helpful"] for record in judged.sampled]
    assert found == pytest.approx(piped(judged.path / "judge", texts), abs=1e-5)
    assert list(map(known, there)) == list(map(known, here))
    assert sum("eval/reward" in record for record in there) == 3


def test_a_reward_model_that_only_an_evaluation_reads(judged):
    parts = {"reward": HELPFUL, "added": HELD_OUT + POOLS.format(role="helpful")}

    there = judged.run("sft", **parts)

    here = judged.run("sft", "train.folder=here", "cluster.executor=local", **parts)
    assert list(map(known, there)) == list(map(known, here))
    assert sum("eval/reward" in record for record in there) == 3


def test_a_reward_model_that_only_an_evaluation_reads_is_divided(judged, monkeypatch):
    ranks, first = [], RayExecutor.first

    def spy(self):
        carry = first(self)
        if "helpful" in carry:
            model = carry["helpful"]
            ranks[:] = ray.get([line.call("number", shares_of, model.id) for line in model.lines])
        return carry

    monkeypatch.setattr(RayExecutor, "first", spy)
    parts = {"reward": HELPFUL, "added": HELD_OUT + DIVIDED + POOLS.format(role="helpful")}

    there = judged.run("sft", "cluster.pools.judges.workers=2", **parts)

    here = judged.run("sft", "train.folder=here", "cluster.executor=local", **parts)
    assert ranks == [2, 2]
    for record, expected in zip(map(known, there), map(known, here), strict=True):
        assert record == pytest.approx(expected, rel=1e-6)


def shares_of(handle):
    """Return over how many ranks a model is divided."""
    return handle.engine.ranks.count if handle.engine.fsdp else 1


def test_a_model_of_the_program_reads_text_on_ray_too(judged):
    parts = {"models": JUDGE, "added": POOLS.format(role="judge")}

    there = judged.run("handed.py", **parts)

    here = judged.run("handed.py", "train.folder=here", "cluster.executor=local", **parts)
    assert list(map(known, there)) == list(map(known, here))


def test_a_reward_model_called_reward_lives_with_the_models(judged, capsys):
    text = REINFORCE.replace('"helpful"', '"reward"')
    (judged.path / "reinforce.py").write_text(text)
    pools = POOLS.split("[cluster.pools.judges]")[0]

    judged.run("reinforce.py", reward=HELPFUL.replace("helpful", "reward"), added=pools)

    assert "pool data: data; " in capsys.readouterr().out


def test_a_reward_model_scores_in_the_rounds_of_dynamic_sampling(judged):
    parts = {"reward": HELPFUL.replace("helpful", "reward"), "added": POOLS.format(role="reward")}
    sets = ("program.samples=3", "program.groups=4", "program.minibatch=6")

    there = judged.run("dapo", *sets, **parts)

    here = judged.run("dapo", *sets, "train.folder=here", "cluster.executor=local", **parts)
    assert list(map(known, there)) == list(map(known, here))
