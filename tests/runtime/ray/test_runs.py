"""Whole runs on Ray are as in one process."""

import re

import pytest
from inline_snapshot import snapshot
from safetensors.torch import load_file
from torch.testing import assert_close

from flowrl.errors import DataError, RunFileError
from tests.runtime.ray.conftest import HELD_OUT, POOLS, RANKS, REPLICAS, TURNS, known
from tests.train.conftest import SCORED

pytestmark = pytest.mark.usefixtures("kept")


@pytest.mark.parametrize("program", ["ppo", "sft"])
def test_a_run_on_ray_logs_evaluates_samples_and_saves_what_one_in_a_process_does(program, heldout):
    sets = ("log.samples=2", "train.checkpoint_every=2")
    there = heldout.run(program, *sets, added=HELD_OUT + POOLS, reward=SCORED)
    samples = heldout.sampled if program == "ppo" else None

    here = heldout.run(
        program,
        *sets,
        "train.folder=here",
        "cluster.executor=local",
        added=HELD_OUT + POOLS,
        reward=SCORED,
    )

    found = [known(record) for record in here]
    assert [known(record) for record in there] == found
    for checkpoint in ("checkpoint-2", "checkpoint"):
        for file in ("policy/model.safetensors", "state.json", "policy/tokenizer.json"):
            pair = [(heldout.path / f / checkpoint / file).read_bytes() for f in ("out", "here")]
            assert pair[0] == pair[1]
    assert samples is None or len(samples) == 2 * 3


def test_a_run_whose_models_take_turns_on_a_device_is_one_where_all_stay(heldout):
    there = heldout.run("grpo", added=HELD_OUT + TURNS, reward=SCORED)

    sets = ("train.folder=here", "cluster.executor=local")
    here = heldout.run("grpo", *sets, added=HELD_OUT + TURNS, reward=SCORED)

    assert [known(record) for record in there] == [known(record) for record in here]
    assert all(r["seconds/main/residency"] > 0 for r in there if "seconds" in r)
    assert any("eval/reward" in record for record in there)
    weights = [
        (heldout.path / f / "checkpoint/policy/model.safetensors").read_bytes()
        for f in ("out", "here")
    ]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("program", "ranks"), [("grpo", RANKS), ("dpo", RANKS), ("grpo", REPLICAS)]
)
def test_a_run_whose_trainer_has_several_ranks_is_that_of_one_process(
    program, ranks, heldout, capsys
):
    sets = ("models.policy.dtype=float64", "models.reference.dtype=float64")
    there = heldout.run(program, *sets, added=HELD_OUT + ranks, reward=SCORED)
    assert capsys.readouterr().out.count("policy: attention: ") == 1

    here = heldout.run(
        program,
        *sets,
        "train.folder=here",
        "cluster.executor=local",
        added=HELD_OUT + ranks,
        reward=SCORED,
    )

    assert any("eval/reward" in record for record in there)
    for record, expected in zip(there, here, strict=True):
        assert known(record) == pytest.approx(known(expected), rel=1e-10, abs=1e-10)
    weights = [
        load_file(heldout.path / f / "checkpoint/policy/model.safetensors") for f in ("out", "here")
    ]
    assert_close(*weights, rtol=0, atol=1e-10)


def test_a_model_that_nothing_reads_need_not_be_named(heldout):
    parts = {"hyperparameters": "samples = 4\nkl_coef = 0", "models": ""}

    records = heldout.run("grpo", added=HELD_OUT + POOLS, **parts)

    assert max(record["step"] for record in records) == 3


def test_progress_shows_the_pools(heldout, capsys):
    heldout.run("grpo", added=HELD_OUT + POOLS)

    printed = re.sub(r"pid \d+ on \S+?(?=[,\n])", "pid", capsys.readouterr().out)
    assert "pool train: policy.train; pid\n" in printed
    assert "pool rollout: policy.generate; pid, pid\n" in printed
    assert "pool data: data, reward; pid\n" in printed
    assert printed.count("policy: attention: sdpa (transformers), padded rows\n") == 1
    assert re.search(r"step 3/3 .*(train|rollout|data)/\w+ \d", printed)


OWN = """
import flowrl as fl
from flowrl import ops


def softened(x):
    return x.tanh()


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="sample")
def soft(rewards):
    return softened(rewards)


@fl.program
def own(policy: fl.Model, prompts: fl.Prompts, *, samples=4):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    advantages = ops.group_advantage(soft(rewards))
    policy, stats = ops.update(policy, lambda new: ops.token_mean(
        ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=0.2), rollouts.mask), rollouts)
    return policy, stats
"""


def test_an_op_of_the_users_file_crosses_with_what_the_file_defines(heldout):
    (heldout.path / "own.py").write_text(OWN)

    there = heldout.run("own.py", added=POOLS, reward=SCORED)
    here = heldout.run(
        "own.py", "train.folder=here", "cluster.executor=local", added=POOLS, reward=SCORED
    )

    assert [known(record) for record in there] == [known(record) for record in heldout.records()]
    assert [known(r) for r in there] == [known(r) for r in here]


def test_a_row_without_what_the_reward_needs_is_an_error_of_the_run(heldout):
    heldout.write_rows("train.jsonl", [{"prompt": "a:", "answer": "a"}, {"prompt": "b:"}])

    with pytest.raises(DataError) as raised:
        heldout.run("grpo", added=POOLS)

    assert str(raised.value) == snapshot("""\
column `answer` is missing; the row has `prompt`; the reward `reward` needs it
train.jsonl:2
  run.toml:14
   14 | [data]
         ^^^^
help: a reward reads `prompts`, `completions` and columns by name; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


def test_ray_that_is_not_installed_is_an_error_of_the_run_file(heldout, monkeypatch):
    monkeypatch.setattr("flowrl.train.executors.find_spec", lambda name: None)

    with pytest.raises(RunFileError) as raised:
        heldout.run("grpo", added=POOLS)

    assert str(raised.value) == snapshot("""\
`cluster.executor` is "ray", but Ray is not installed
  run.toml:33
   33 | executor = "ray"
        ^^^^^^^^
help: pip install "flowrl[ray]", or set `executor = "local"`\
""")
