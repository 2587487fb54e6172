"""What pools decide for a plan."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.planned import plan_run
from flowrl.errors import RunFileError


def test_a_pool_whose_gpus_no_model_uses_is_told_with_its_line(load):
    text = """
[program]
file = "sft"
[models.policy]
path = "Qwen/Qwen2.5-0.5B"
[data]
source = "train.jsonl"
[train]
steps = 1
prompts_per_step = 8
[cluster]
machines = "8xH100"
executor = "ray"
[cluster.pools.trains]
gpus = 1
roles = ["policy.train"]
[cluster.pools.samples]
gpus = 1
roles = ["policy.generate"]
"""

    with pytest.raises(RunFileError) as refused:
        plan_run(load(text=text))

    assert str(refused.value) == snapshot("""\
pool `samples` has GPUs, but no model that the program runs
  run.toml:18
   18 | gpus = 1
        ^^^^
help: let it claim a use that the program has, or leave it out\
""")
