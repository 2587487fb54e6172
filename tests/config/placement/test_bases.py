"""Adapters in a run file, and the models that they are trained on."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.checks.program import check_run
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO

LORA = "[models.policy.lora]\nrank = 4\n"


def checked(run):
    traced = trace_run(run)
    check_run(run, traced.graph, traced.program.inputs)


def test_a_model_of_the_same_folder_is_the_base(load):
    assert cluster_of(load()).bases == {}
    assert cluster_of(load(LORA)).bases == {"reference": "policy"}
    assert cluster_of(load(LORA, 'models.policy.path="./model"')).bases == {"reference": "policy"}
    assert cluster_of(load(LORA, 'models.reference.path="other"')).bases == {}
    assert cluster_of(load(LORA, 'models.reference.dtype="bfloat16"')).bases == {}


def test_an_adapter_has_no_layout_beside_models_that_have(load):
    pools = '[cluster]\nexecutor = "ray"\n[cluster.pools.all]\nworkers = 2\nroles = ["policy"]\n'
    other = '[cluster.pools.rest]\nworkers = 2\nroles = ["reference"]\n'
    shard = (
        '[engines.policy.train]\nshard = "fsdp2"\n[cluster.pools.rest.layouts]\nreference = "dp2"\n'
    )

    cluster = cluster_of(load(LORA + pools + other + shard))

    assert cluster.layout_of("policy", "train") == ""
    assert cluster.layout_of("reference", "train") == "dp2"
    assert cluster.bases == {"reference": "policy"}


def test_dropout_is_refused(error_of):
    assert error_of(LORA + "dropout = 0.1\n") == snapshot("""\
`models.policy.lora.dropout` must be 0; got 0.1
  run.toml:22
   22 | dropout = 0.1
        ^^^^^^^
help: with dropout a policy's ratio to itself would not be 1, and a gradient would depend on how rows are divided\
""")


def test_adapters_of_no_layer_are_refused(error_of):
    assert error_of(LORA + "targets = []\n") == snapshot("""\
`models.policy.lora.targets` names no layer
  run.toml:22
   22 | targets = []
        ^^^^^^^
help: "all-linear" takes all linear layers but heads\
""")


def test_a_layout_is_refused(error_of):
    pools = '[cluster]\nexecutor = "ray"\n[cluster.pools.all]\nworkers = 2\nroles = ["policy"]\n'
    layouts = '[cluster.pools.all.layouts]\n"policy.generate" = "tp2"\n'

    assert error_of(LORA + pools + layouts) == snapshot("""\
`policy` has an adapter: each worker samples from the whole model, and `shard = "fsdp2"` divides it over all workers of its pool
  run.toml:28
   28 | "policy.generate" = "tp2"
         ^^^^^^^^^^^^^^^
  run.toml:20
   20 | [models.policy.lora]
                       ^^^^
help: leave the layout out\
""")


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
`policy` has an adapter, and a mean of adapters is not that of the models
  run.toml:20
   20 | [models.policy.lora]
                       ^^^^
  tethered.py:12
   12 |     reference = ops.ema(reference, policy, decay=0.9)
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: train the whole model: leave the table out\
""")
