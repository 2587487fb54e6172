"""Rewards that models give, on Ray."""

import pytest

from tests.runtime.ray.conftest import HELD_OUT
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


@pytest.fixture
def judged(heldout, kept):
    """A run's folder with a reward model of another tokenizer; runs take the session's workers."""
    make_judge(heldout.path / "judge", merging_tokenizer())
    (heldout.path / "reinforce.py").write_text(REINFORCE)
    (heldout.path / "handed.py").write_text(HANDED)
    return heldout


def known(records):
    return [{n: x for n, x in r.items() if not n.startswith("seconds")} for r in records]


def test_a_reward_model_in_a_pool_of_its_own_scores_as_in_one_process(judged):
    parts = {"reward": HELPFUL, "added": HELD_OUT + POOLS.format(role="helpful")}

    there = judged.run("reinforce.py", "log.samples=8", **parts)

    here = judged.run("reinforce.py", "train.folder=here", "cluster.executor=local", **parts)
    texts = [record["prompt"] + record["completion"] for record in judged.sampled]
    found = [record["rewards"]["helpful"] for record in judged.sampled]
    assert found == pytest.approx(piped(judged.path / "judge", texts), abs=1e-5)
    assert known(there) == known(here)
    assert sum("eval/reward" in record for record in there) == 3


def test_a_reward_model_that_only_an_evaluation_reads(judged):
    parts = {"reward": HELPFUL, "added": HELD_OUT + POOLS.format(role="helpful")}

    there = judged.run("sft", **parts)

    here = judged.run("sft", "train.folder=here", "cluster.executor=local", **parts)
    assert known(there) == known(here)
    assert sum("eval/reward" in record for record in there) == 3


def test_a_model_of_the_program_reads_text_on_ray_too(judged):
    parts = {"models": JUDGE, "added": POOLS.format(role="judge")}

    there = judged.run("handed.py", **parts)

    here = judged.run("handed.py", "train.folder=here", "cluster.executor=local", **parts)
    assert known(there) == known(here)


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
    assert known(there) == known(here)
