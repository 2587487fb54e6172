"""Faults that have cost runs elsewhere: each is found, named and counted."""

import json

import psutil
import pytest
import torch
from inline_snapshot import snapshot
from transformers import AutoModelForCausalLM

from flowrl.errors import EngineError, RewardError
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from tests.train.conftest import ROWS, SCORED, make_tokenizer

FAST = "optimizer.learning_rate=0.1"
COPIED = "cluster.pools={all={roles=['policy'], residencies={'policy.generate'='resident'}}}"
"""The generator has weights of its own, which may be old."""


def gaps(records):
    return [record["policy/logprob_gap_max"] for record in records]


def state(folder, out="out", checkpoint="checkpoint"):
    path = folder.path / out / checkpoint / "policy"
    return AutoModelForCausalLM.from_pretrained(path).state_dict()


# An engine that keeps what it should have dropped


@pytest.fixture
def stale(monkeypatch):
    """Let the generator keep its first weights."""
    load = HFGenerator.load

    def once(self, weights, version):
        if version == 0:
            load(self, {name: x.clone() for name, x in weights.items()}, version)

    monkeypatch.setattr(HFGenerator, "load", once)


def test_engine_and_trainer_agree_after_each_update(folder):
    assert max(gaps(folder.run("grpo", FAST))) < 1e-4


def test_stale_weights_show_in_the_gap(folder, stale):
    first, *later = gaps(folder.run("grpo", FAST, COPIED))

    assert first < 1e-4
    assert min(later) > 0.1


def test_a_gap_above_its_limit_stops_the_run(folder, stale):
    with pytest.raises(EngineError) as error:
        folder.run("grpo", FAST, COPIED, "train.max_logprob_mismatch=0.1")

    assert str(error.value) == snapshot("""\
policy/logprob_gap_max is 1.765 at step 2; at most 0.1 is allowed: the engine (weights of version 1) and the trainer (version 1) give different log-probabilities to the same tokens
  --set train.max_logprob_mismatch=0.1
help: look for stale weights or caches in the engine, another temperature, or lower precision (in bfloat16 rounding alone is 0.3 on a token, and more on some)\
""")
    assert [record["step"] for record in folder.records()] == [1, 2]
    assert gaps(folder.records())[1] > 0.1


def test_a_mean_gap_above_its_limit_stops_the_run(folder, stale):
    with pytest.raises(EngineError, match=r"policy/logprob_gap_mean is .* at step 2; at most 0.02"):
        folder.run("grpo", FAST, COPIED, "train.max_mean_logprob_mismatch=0.02")

    first, second = folder.records()
    assert first["policy/logprob_gap_mean"] < 1e-5
    assert 0.02 < second["policy/logprob_gap_mean"] < second["policy/logprob_gap_max"]


# An engine that reports other log-probabilities than it samples by


@pytest.fixture
def untempered(monkeypatch):
    """Let the generator report the log-probabilities of temperature 1."""
    module = "flowrl.runtime.engines.hf.sample"

    def plain(logits, sampling, uniform):
        tokens, _ = sample(logits, sampling, uniform)
        return tokens, torch.log_softmax(logits, -1).gather(-1, tokens[:, None])[:, 0]

    from flowrl.runtime.sampling.distribution import sample

    monkeypatch.setattr(module, plain)


TEMPERED = ("engines.policy.generate.temperature=0.6", "train.max_logprob_mismatch=0.05")


def test_on_policy_ratios_are_1_at_another_temperature(folder):
    records = folder.run("grpo", *TEMPERED)

    assert max(gaps(records)) < 1e-4
    assert all(record["policy/kl_old"] < 1e-6 for record in records)
    assert all(record["policy/clip_fraction"] == 0 for record in records)


def test_untempered_logprobs_are_found_in_the_first_step(folder, untempered):
    with pytest.raises(EngineError, match=r"at step 1; [\s\S]* another temperature"):
        folder.run("grpo", *TEMPERED)


# Rewards that fail


FAULTY = """
def vowels(prompts, completions):
    if {bad} in zip(prompts, completions):
        {what}
    return [text.count("a") + 0.1 * len(text) for text in completions]
"""
ORDER = ("data.shuffle=false", "train.steps=2", "log.samples=16", "train.checkpoint_every=1")


@pytest.fixture
def faulty(folder):
    """Let the reward function fail on the third sample of the second prompt of step 2."""
    (folder.path / "reward.py").write_text(FAULTY.format(bad="()", what="pass"))
    folder.run("grpo", *ORDER)
    (wanted,) = (
        s for s in folder.sampled if (s["step"], s["row"], s["sample"]) == (2, "train.jsonl:6", 2)
    )
    folder.clean()

    def write(what):
        bad = (wanted["prompt"], wanted["completion"])
        (folder.path / "reward.py").write_text(FAULTY.format(bad=bad, what=what))

    return write


def test_a_failing_reward_ends_the_run_naming_sample_and_step(folder, faulty):
    faulty('raise KeyError("x7")')

    with pytest.raises(RewardError) as error:
        folder.run("grpo", *ORDER)

    assert str(error.value) == snapshot("""\
the reward function `reward.py:vowels` raised KeyError: 'x7'
  train.jsonl:6 (row 5), sample 2, step 2
  reward.py:4
    4 |         raise KeyError("x7")
                ^^^^^^^^^^^^^^^^^^^^
help: fix the function or the row; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")
    assert state(folder, checkpoint="checkpoint-1")
    assert not (folder.path / "out" / "checkpoint").exists()


def test_a_failing_rewards_group_is_dropped_and_counted(folder, faulty):
    faulty('raise KeyError("x7")')

    first, second = folder.run("grpo", *ORDER, "reward.on_reward_error=drop_group")

    assert (first["reward/errors"], second["reward/errors"]) == (0, 1)


def test_a_dropped_group_leaves_the_step_that_it_was_never_in(folder):
    (folder.path / "reward.py").write_text(FAILING_ON_D)
    one = ("data.shuffle=false", "train.steps=1", "reward.on_reward_error=drop_group")

    (dropped,) = folder.run("grpo", *one, "train.folder=dropped")
    (without,) = folder.run("grpo", *one, "train.folder=without", "train.prompts_per_step=3")

    assert (dropped["reward/errors"], without["reward/errors"]) == (4, 0)
    for name in ("policy/loss", "policy/grad_norm", "reward"):
        assert dropped[name] == pytest.approx(without[name], rel=1e-5)
    torch.testing.assert_close(
        state(folder, "dropped"), state(folder, "without"), rtol=0, atol=1e-6
    )


def test_a_step_whose_groups_are_all_dropped_has_no_reward(folder, capsys):
    (folder.path / "reward.py").write_text("def vowels(completions, answer):\n    1 / 0\n")

    (record,) = folder.run("grpo", "train.steps=1", "reward.on_reward_error=drop_group")

    assert (record["reward"], record["policy/grad_norm"]) == (None, 0)
    assert "step 1/1 | no reward | " in capsys.readouterr().out


FAILING_ON_D = """
def vowels(prompts, completions):
    assert not any(prompt.startswith("d") for prompt in prompts)
    return [text.count("a") + 0.1 * len(text) for text in completions]
"""


def test_a_failing_reward_can_score_zero(folder, faulty):
    faulty('raise KeyError("x7")')

    _, second = folder.run("grpo", *ORDER, "reward.on_reward_error=score_zero")

    assert second["reward/errors"] == 1
    failed = [s for s in folder.sampled if s["rewards"]["reward"] is None]
    assert [(s["step"], s["row"], s["sample"]) for s in failed] == [(2, "train.jsonl:6", 2)]


@pytest.mark.parametrize("policy", ["drop_group", "score_zero"])
@pytest.mark.parametrize("value", ["None", "float('nan')"])
def test_no_number_follows_the_policy_and_is_counted(folder, faulty, policy, value):
    faulty(f"return [{value}] if len(completions) == 1 else 1 / 0")

    records = folder.run("grpo", *ORDER, f"reward.on_reward_error={policy}")

    assert [record["reward/errors"] for record in records] == [0, 1]
    assert all(x.isfinite().all() for x in state(folder).values())


RETURNED = """
import numpy

def vowels(completions):
    {0}
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            'return ["0.5"] * len(completions)',
            snapshot(
                "the reward function `reward.py:vowels` returned str ('0.5') where a number belongs"
            ),
        ),
        (
            "return [0.5] * (len(completions) - 1)",
            snapshot(
                "the reward function `reward.py:vowels` returned 15 scores for 16 completions"
            ),
        ),
        (
            "return [None] + [0.5] * (len(completions) - 1)",
            snapshot("the reward function `reward.py:vowels` returned None"),
        ),
    ],
)
def test_wrong_returns_are_errors_with_types_or_lengths(folder, returned, message):
    (folder.path / "reward.py").write_text(RETURNED.format(returned))

    with pytest.raises(RewardError) as error:
        folder.run("grpo", "data.shuffle=false")

    assert str(error.value).splitlines()[0] == message


def test_arrays_and_bools_are_rewards(folder):
    returned = "return numpy.array([len(text) > 5 for text in completions])"
    (folder.path / "reward.py").write_text(RETURNED.format(returned))

    assert all(0 <= record["reward"] <= 1 for record in folder.run())


HANGING = """
import os

def vowels(prompts, completions):
    with open("pids.txt", "a") as file:
        print(os.getpid(), file=file)
    while any(prompt.startswith("b") for prompt in prompts):
        pass
    return [float(len(text)) for text in completions]
"""


def test_a_reward_that_never_returns_is_ended_and_counted(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    (folder.path / "reward.py").write_text(HANGING)
    folder.write_rows("train.jsonl", ROWS[:4])
    reward = '[reward.reward]\nfunction = "reward.py:vowels"\ntime_limit = 3.0'
    limits = ("reward.workers=2", "reward.on_reward_error=drop_group")

    records = folder.run("grpo", "program.samples=2", "train.steps=2", *limits, reward=reward)

    assert [record["reward/timeouts"] for record in records] == [2, 2]
    started = {int(line) for line in (folder.path / "pids.txt").read_text().split()}
    assert len(started) > 2
    assert not [pid for pid in started if psutil.pid_exists(pid)]


def test_a_reward_worker_that_dies_is_replaced(folder):
    (folder.path / "reward.py").write_text(
        "import os, signal\n"
        "def vowels(prompts, completions):\n"
        "    if any(prompt.startswith('e') for prompt in prompts):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return [float(len(text)) for text in completions]\n"
    )

    records = folder.run("grpo", *ORDER, "reward.workers=2", "reward.on_reward_error=drop_group")

    assert [record["reward/errors"] for record in records] == [0, 4]


# Sampling that cannot fill a batch


FILLED = """
import flowrl as fl
from flowrl import ops

@fl.program
def filled(policy: fl.Model, prompts: fl.Prompts, *, shortfall="error"):
    def draw(prompts):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=4))
        return ops.record(rollouts, rewards=rewards)

    keep = lambda batch: batch.rewards.std(over="sample") > 0
    batch, surplus, drawn = ops.sample_until(draw, keep, prompts, groups=4, rounds=3, shortfall=shortfall)
    advantages = ops.group_advantage(batch.rewards)
    loss = lambda new: ops.token_mean(-new.logprobs * advantages, batch.mask)
    policy, stats = ops.update(policy, loss, batch)
    return policy, stats | {"drawn": drawn.float()}
"""
MOSTLY_ONE = """
def vowels(prompts, completions):
    return [float(i) if prompt.startswith("a") else 1 for i, prompt in enumerate(prompts)]
"""


@pytest.fixture
def filled(folder):
    (folder.path / "filled.py").write_text(FILLED)
    (folder.path / "reward.py").write_text(MOSTLY_ONE)
    return folder


def test_a_batch_that_cannot_be_filled_stops_the_run(filled):
    with pytest.raises(EngineError) as error:
        filled.run("filled.py", reward=SCORED)

    assert str(error.value) == snapshot("""\
sample_until: 4 groups wanted, 1 of 12 prompts kept in 3 rounds; all samples have the same `reward` in 91.7% of the groups: 1 in 91.7%
  filled.py:12
   12 |     batch, surplus, drawn = ops.sample_until(draw, keep, prompts, groups=4, rounds=3, shortfall=shortfall)
                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: if all are right the task is too easy for the policy, if all are wrong too hard, or the reward misreads them: take other prompts; or draw more rounds or prompts, keep more, or go on with fewer: shortfall='accept'\
""")


def test_a_batch_can_be_what_there_is(filled):
    (record,) = filled.run(
        "filled.py",
        "train.steps=1",
        'program.shortfall="accept"',
        "data.shuffle=false",
        reward=SCORED,
    )

    saved = json.loads((filled.path / "out" / "checkpoint" / "state.json").read_text())
    assert record["drawn"] == 12
    assert saved["data"] == {"prompts": 12}
    assert record["policy/grad_norm"] > 0


# One beginning of sequence


@pytest.mark.parametrize(
    ("bos", "template", "count"),
    [
        (True, "<bos>{{ messages[0].content }}=", 1),
        (True, "{{ messages[0].content }}=", 1),
        (False, "{{ messages[0].content }}=", 0),
    ],
)
def test_a_prompt_has_one_bos_everywhere(
    folder, make_model, sent, monkeypatch, bos, template, count
):
    trained, update = [], TorchTrainer.update

    def spy(self, batch, *rest):
        trained.extend(row.tolist() for row in batch.context.rows())
        return update(self, batch, *rest)

    monkeypatch.setattr(TorchTrainer, "update", spy)
    folder.model = make_model(make_tokenizer(bos=bos, chat_template=template))
    folder.write_rows("train.jsonl", ROWS[:4])

    folder.run("grpo", "data.chat=true", "train.steps=1", "program.samples=2", added="[eval]\n")

    assert {prompt.count(1) for prompt in sent} == {count}
    unique = lambda prompts: {tuple(prompt) for prompt in prompts}
    assert unique(trained) == unique(sent[4:8]) == unique(sent[:4]) == unique(sent[-4:])
