"""Layouts of a run file, against the models that they lay out."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.config.checks.layouts import check_layouts, check_machines
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import pools_of

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 40,
}
THIRDS = {"hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3}
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2}
POOL = (
    "[cluster.pools.main]\nworkers = 3\nroles = ['policy']\nlayouts = {'policy.generate' = 'tp3'}\n"
)


def checked(load, config, pool=POOL):
    run = load(pool)
    run.resolve("model").mkdir(exist_ok=True)
    (run.resolve("model") / "config.json").write_text(json.dumps(config))
    check_layouts(run, trace_run(run).graph)


def test_a_layout_that_a_model_does_not_divide_into(load):
    with pytest.raises(RunFileError) as error:
        checked(load, CONFIG)

    assert str(error.value) == snapshot("""\
the layout `tp3` doesn't fit this llama model: `tp` 3 doesn't divide the 2 heads of `model.layers.0.self_attn.q_proj.weight`
  run.toml:23
   23 | layouts = {'policy.generate' = 'tp3'}
                    ^^^^^^^^^^^^^^^
help: divide by fewer, and fill the pool with `dp` or `fsdp`\
""")


@pytest.mark.parametrize("config", [CONFIG | THIRDS, CONFIG | THIRDS | {"model_type": "granite"}])
def test_a_layout_of_a_model_that_divides_so_or_that_the_planner_does_not_know(load, config):
    checked(load, config)


def test_models_that_engines_do_not_divide_are_told_before_they_are_loaded(load):
    found = []
    for family in ("gpt2", "bloom", "olmo2", "mixtral", "unheard-of"):
        with pytest.raises(RunFileError) as error:
            checked(load, CONFIG | THIRDS | EXPERTS | {"model_type": family})
        found.append(error.value.problem.replace(str(load().resolve("model")), "FOLDER"))

    assert found == snapshot(
        [
            "transformers declares no `base_model_tp_plan` for models of type `gpt2`, by which several ranks could divide this one",
            "transformers declares no `base_model_tp_plan` for models of type `bloom`, by which several ranks could divide this one",
            "ranks divide linear layers by `colwise` and `rowwise`; in models of type `olmo2` transformers declares `model.layers.0.self_attn.q_proj` as `colwise_gather_output`",
            "ranks divide linear layers by `colwise` and `rowwise`; in models of type `mixtral` transformers declares `model.layers.0.mlp.experts` as `moe_tp_experts`",
            "`FOLDER` holds no model: The checkpoint you are trying to load has model type `unheard-of` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint, or because your version of Transformers is out of date.",
        ]
    )
    assert str(error.value).partition("\n")[2] == snapshot("""\
  run.toml:23
   23 | layouts = {'policy.generate' = 'tp3'}
                    ^^^^^^^^^^^^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
""")


def test_weights_that_are_whole_are_laid_out_whatever_engines_divide(load):
    config = CONFIG | THIRDS | {"model_type": "gpt2"}

    checked(load, config, POOL.replace("tp3", "dp3"))


GPUS = """
[cluster]
executor = "ray"
machines = "8xH100"
[cluster.pools.trains]
gpus = 4
workers = 4
roles = ["policy"]
[cluster.pools.compares]
gpus = 8
workers = 8
roles = ["reference"]
"""


def test_pools_that_are_used_have_no_more_gpus_than_the_machines(load):
    run, unused = load(GPUS), load(GPUS, "program.file=opo")

    with pytest.raises(RunFileError) as error:
        check_machines(run, pools_of(run))

    assert str(error.value) == snapshot("""\
the pools have 12 GPUs; `8xH100` has 8
  run.toml:23
   23 | machines = "8xH100"
        ^^^^^^^^
help: give pools fewer `gpus`, or name more machines\
""")
    check_machines(unused, pools_of(unused))


def test_a_layout_of_a_model_that_is_not_used_is_not_held_against_it(load):
    checked(load, CONFIG, POOL.replace("policy", "critic") + "[models.critic]\npath = 'model'\n")
