"""The adapters of a run file, held against its program."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.program import check_run
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO

LORA = "[models.policy.lora]\nrank = 4\n"


def checked(run):
    traced = trace_run(run)
    check_run(run, simplify(traced.graph, Cluster()), traced.program.inputs)


def test_an_adapter_that_nothing_trains_is_refused(load):
    with pytest.raises(RunFileError) as caught:
        checked(load("[models.reference.lora]\n"))

    assert str(caught.value) == snapshot("""\
`reference` has an adapter to train, but the program doesn't update it
  run.toml:20
   20 | [models.reference.lora]
                          ^^^^
help: leave the table out\
""")


def test_an_adapter_of_a_model_that_nothing_reads_is_left_alone(load):
    critic = "[models.critic]\npath = 'model'\n[models.critic.lora]\n"
    text = GRPO.replace("exact =", "reward =")

    checked(load(critic, text=text))
    pool = "[cluster.pools.main]\nroles = ['reference']\nlayouts = {reference = '1'}\n"
    checked(load("[models.reference.lora]\n" + pool, "program.kl_coef=0", text=text))


def test_an_adapter_in_a_dtype_that_the_engine_has_no_kernels_for(load):
    engine = "[engines.policy.generate]\nengine = 'vllm'\n"
    gpu = "[cluster.pools.main]\ngpus = 1\n"
    text = GRPO.replace("exact =", "reward =")

    with pytest.raises(RunFileError) as caught:
        checked(load(LORA + engine + gpu, text=text))

    assert str(caught.value) == snapshot("""\
on a GPU vLLM computes adapters in bfloat16; `models.policy.dtype` is "float32"
  run.toml:20
   20 | [models.policy.lora]
                       ^^^^
help: set `models.policy.dtype = "bfloat16"`, or `engine = "hf"`\
""")
    checked(load(LORA + engine, text=text))
    checked(load(engine + gpu, text=text))
    checked(load(LORA + gpu, text=text))
    checked(load(LORA + engine + gpu, "models.policy.dtype=bfloat16", text=text))


def test_a_layout_of_what_has_an_adapter_is_refused(load):
    pools = '[cluster]\nexecutor = "ray"\n[cluster.pools.all]\nworkers = 2\nroles = ["policy"]\n'
    layouts = '[cluster.pools.all.layouts]\n"policy.generate" = "tp2"\n'

    with pytest.raises(RunFileError) as caught:
        checked(load(LORA + pools + layouts, text=GRPO.replace("exact =", "reward =")))

    assert str(caught.value) == snapshot("""\
`policy` has an adapter: each worker samples from the whole model, and `shard = "fsdp2"` divides it over all workers of its pool
  run.toml:28
   28 | "policy.generate" = "tp2"
         ^^^^^^^^^^^^^^^
  run.toml:20
   20 | [models.policy.lora]
                       ^^^^
help: leave the layout out\
""")


EMA = """
import flowrl as fl
from flowrl import ops

@fl.program
def tethered(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=4):
    rollouts, rewards = ops.score("exact", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    policy, stats = ops.update(
        policy, lambda new: ops.token_mean(ops.kl(new.logprobs, anchor), rollouts.mask), rollouts
    )
    reference = ops.ema(reference, policy, decay=0.9)
    return policy, reference, stats
"""


def test_a_mean_of_adapters_is_refused(load, tmp_path):
    (tmp_path / "tethered.py").write_text(EMA)

    with pytest.raises(RunFileError) as caught:
        checked(load(LORA, text=GRPO.replace('"grpo"', '"tethered.py"')))

    assert str(caught.value) == snapshot("""\
`policy` has an adapter, and averaged adapters are not the adapter of the averaged models
  run.toml:20
   20 | [models.policy.lora]
                       ^^^^
  tethered.py:12
   12 |     reference = ops.ema(reference, policy, decay=0.9)
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: train the whole model: leave the table out\
""")
