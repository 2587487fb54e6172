"""Layouts of a run file, against the models that they lay out."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.config.layouts import check_layouts
from flowrl.errors import RunFileError

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 40,
}
POOL = (
    "[cluster.pools.main]\nworkers = 3\nroles = ['policy']\nlayouts = {'policy.generate' = 'tp3'}\n"
)


def checked(load, config):
    run = load(POOL)
    run.resolve("model").mkdir()
    (run.resolve("model") / "config.json").write_text(json.dumps(config))
    check_layouts(run)


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


@pytest.mark.parametrize(
    "config", [CONFIG | {"hidden_size": 24, "num_attention_heads": 3}, {"model_type": "unheard-of"}]
)
def test_a_layout_of_a_model_that_divides_so_or_that_the_planner_does_not_know(load, config):
    checked(load, config | {"num_key_value_heads": 3})
