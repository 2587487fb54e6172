"""What pools decide for a plan."""

from flowrl.config.planned import plan_run


def test_a_pool_in_which_nothing_lives_is_not_planned(load):
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

    pools = plan_run(load(text=text))[1].cluster.pools

    assert [(pool.name, pool.gpus) for pool in pools] == [("trains", 1), ("data", 0)]
