"""What is wrong is found before a model loads, with key, value and rule."""

import attrs
import pytest
import torch
from inline_snapshot import snapshot

from flowrl.config.run_file import load_run_file
from flowrl.config.tables.schema import OptimizerSettings
from flowrl.errors import (
    DataError,
    EngineError,
    ProgramError,
    RunFileError,
)
from flowrl.runtime.ranks.ranks import Fsdp2
from flowrl.runtime.training.schedule import TrainerOptions
from flowrl.train.prepare import lower
from tests.train.conftest import REFERENCE, SCORED

DUAL = """
import flowrl as fl
from flowrl import ops

@fl.program
def dual(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=2, dual_clip=3.0, in_reward=0.0, in_loss=0.0):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask, in_reward * (rollouts.logprobs - anchor))
    advantages = ops.whiten(rewards, rollouts.mask)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, dual_clip=dual_clip)
        return ops.token_mean(surrogate + in_loss * ops.kl(new.logprobs, anchor), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
"""


@pytest.fixture
def dual(folder):
    (folder.path / "dual.py").write_text(DUAL)
    return {"reward": SCORED, "models": REFERENCE.format(model=folder.model)}


def test_responses_that_do_not_divide_into_minibatches(refused):
    error = refused("ppo", "train.prompts_per_step=24", "program.minibatch=5", kind=RunFileError)

    assert error == snapshot("""\
24 responses a step (`train.prompts_per_step` = 24 x samples = 1) don't split into minibatches of 5: remainder 4
  --set train.prompts_per_step=24
  ppo.py:22
   22 |     (policy, critic), stats = ops.scan(body, (policy, critic), ops.minibatches(batch, sequences=minibatch, epochs=epochs))
                                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: a minibatch of 4 fits\
""")


def test_an_unknown_hyperparameter(refused):
    assert refused("grpo", "program.clip_ratoi=0.2", kind=RunFileError) == snapshot("""\
`grpo` has no `clip_ratoi` (did you mean `clip`?)
  --set program.clip_ratoi=0.2
help: the hyperparameters of `grpo` are samples, clip, kl_coef\
""")


def test_a_hyperparameter_of_another_algorithm(refused):
    assert refused("ppo", "program.samples=8", kind=RunFileError) == snapshot("""\
`ppo` has no `samples`
  --set program.samples=8
help: leave it out: the hyperparameters of `ppo` are epochs, minibatch, clip, kl_coef; `samples` is a key of [eval] and [log]\
""")


def test_a_dual_clip_that_is_not_above_1(refused, dual):
    assert refused("dual.py", "program.dual_clip=0.8", kind=ProgramError, **dual) == snapshot("""\
clipped_surrogate: `dual_clip` must be above 1; got 0.8
  dual.py:13
   13 |         surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, dual_clip=dual_clip)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: leave it out, or take 3.0\
""")


ADAPTIVE = """
import flowrl as fl
from flowrl import ops

@fl.program
def adaptive(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, coefficient: fl.Carry = fl.Carry(0.1), *, target=6.0):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts))
    gap = rollouts.logprobs - ops.logprobs(reference, rollouts)
    coefficient = ops.adaptive_kl(coefficient, gap.sum(over="token", mask=rollouts.mask), target=target, horizon=1000)
    rewards = ops.token_rewards(scores, rollouts.mask, coefficient * gap)
    loss = lambda new: ops.token_mean(-new.logprobs * rewards, rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, coefficient, stats
"""


def test_an_adaptive_kl_without_a_target(folder, refused, dual):
    (folder.path / "adaptive.py").write_text(ADAPTIVE)

    error = refused("adaptive.py", "program.target=0", kind=ProgramError, **dual)

    assert error == snapshot("""\
adaptive_kl: `target` must be above 0; got 0.0
  adaptive.py:9
    9 |     coefficient = ops.adaptive_kl(coefficient, gap.sum(over="token", mask=rollouts.mask), target=target, horizon=1000)
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: target is in nats, horizon in samples\
""")
    assert folder.run("adaptive.py", **dual)


def test_an_option_that_no_engine_has(refused):
    error = refused("grpo", "engines.policy.generate.beams=4", kind=RunFileError)

    assert error == snapshot("""\
unknown key `beams` in [engines.policy.generate]
  --set engines.policy.generate.beams=4
help: the keys of [engines.policy.generate] are engine, temperature, top_p, top_k, max_tokens, min_tokens, stop, sequences_per_block, vllm\
""")


def test_groups_of_one_sample(refused):
    assert refused("grpo", "program.samples=1", kind=ProgramError) == snapshot("""\
group_advantage: compares the samples of a prompt, and there is one sample a prompt: every advantage would be 0
  grpo.py:16
   16 |     advantages = ops.group_advantage(rewards)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
the samples are drawn here:
  grpo.py:14
   14 |     rollouts = ops.generate(policy, prompts, n=samples)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: draw several: `ops.generate(policy, prompts, n=8)`\
""")


def test_a_kl_in_both_reward_and_loss_is_said(folder, dual, capsys):
    folder.run("dual.py", "program.in_loss=0.1", "program.in_reward=0.1", **dual)
    assert "A KL is" in (said := capsys.readouterr().out)
    assert said.splitlines()[1] == snapshot(
        "A KL is in the reward (at dual.py:9) and in the loss (at dual.py:14): both count."
    )

    folder.clean()
    folder.run("dual.py", "program.in_loss=0.1", **dual)
    assert "A KL is" not in capsys.readouterr().out


def test_a_table_that_changes_nothing_is_said(folder, capsys):
    folder.run("grpo", "optimizer.reference.eps=1e-6")

    assert capsys.readouterr().out.splitlines()[1] == snapshot(
        "[optimizer.reference] changes nothing: the program doesn't update `reference` (--set optimizer.reference.eps=1e-6)."
    )


def test_a_task_that_is_not_there(refused):
    source = "data.source=reasoning_gym:spell_backwards"

    assert refused("grpo", source, kind=DataError) == snapshot("""\
`data.source`: reasoning_gym has no task `spell_backwards` (did you mean `spell_backward`?)
  --set data.source=reasoning_gym:spell_backwards\
""")


def test_a_model_folder_that_is_not_there(folder, refused):
    lacks = folder.model.parent / "nowhere"

    error = refused("grpo", models=REFERENCE.format(model=lacks), kind=DataError)

    assert error.replace(str(lacks), "NOWHERE") == snapshot("""\
`models.reference.path`: there is no such model folder
  run.toml:9
    9 | path = "NOWHERE"
        ^^^^
NOWHERE
help: give a folder, or a name on the hub: `org/name`\
""")


def test_batches_that_divide_start(folder):
    assert folder.run("ppo", "train.prompts_per_step=6", "program.minibatch=3", "train.steps=1")


def test_a_model_lives_on_the_gpus_of_its_pool_unless_they_are_emulated(folder):
    pools = """
[cluster]
executor = "ray"
[cluster.pools.train]
roles = ["policy.train", "reference"]
[cluster.pools.rollout]
gpus = 1
roles = ["policy.generate"]
"""
    path = folder.write("grpo", added=pools)

    real = lower(load_run_file(path)).models["policy"]
    emulated = lower(load_run_file(path, ("cluster.num_gpus=1",))).models["policy"]

    assert (real.model.device, real.generator_device) == ("cpu", "cuda")
    assert (emulated.model.device, emulated.generator_device) == ("cpu", "cpu")


def test_vllm_is_started_with_the_share_of_the_gpu_that_plans_count(folder):
    pools = """
[cluster]
executor = "ray"
[cluster.pools.train]
roles = ["policy.train"%s]
[cluster.pools.rollout]
roles = ["policy.generate"%s]
"""
    vllm = ('engines.policy.generate.engine="vllm"',)

    apart, together = (
        lower(load_run_file(folder.write("grpo", added=pools % claims), vllm)).models["policy"]
        for claims in ((', "reference"', ""), ("", ', "reference"'))
    )

    assert apart.generator_options == {"gpu_memory_utilization": 0.9}
    assert together.generator_options == {"gpu_memory_utilization": 0.4}


def test_a_layout_says_how_many_replicas_of_divided_weights_there_are(folder):
    pools = """
[engines.policy.train]
shard = "fsdp2"
[cluster.pools.train]
workers = 4
roles = ["policy"]
"""
    path = folder.write("grpo", added=pools)

    def fsdp(*sets):
        return lower(load_run_file(path, sets)).models["policy"].fsdp

    assert fsdp() == Fsdp2()
    assert fsdp("cluster.pools.train.layouts.policy='dp2 x fsdp2'") == Fsdp2(replicas=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(folder, refused):
    assert refused("grpo", kind=EngineError, added="[cluster.pools.main]\ngpus = 1\n") == snapshot("""\
`policy` is placed on a GPU of pool `main`, but torch finds none here
  run.toml:32
   32 | gpus = 1
        ^^^^
help: give its pool no gpus, or install a torch and a driver for the GPU; `cluster.num_gpus` emulates GPUs\
""")
    assert not (folder.path / "out").exists()


def test_where_a_run_file_is_silent_a_trainer_has_its_own_defaults():
    silent, trainer = OptimizerSettings(), TrainerOptions()

    keys = [field.name for field in attrs.fields(OptimizerSettings)]
    assert [getattr(silent, key) for key in keys] == [getattr(trainer, key) for key in keys]


def test_a_kernel_of_gpus_for_a_model_on_a_cpu(refused):
    error = refused("grpo", 'engines.policy.train.attention="flex"', kind=EngineError)

    assert str(error) == snapshot("""\
`engines.policy.train.attention` = "flex" is a GPU kernel, and `policy` runs on a CPU
  --set engines.policy.train.attention="flex"
help: give its pool `gpus`; "auto" takes the fastest kernel that is available\
""")
