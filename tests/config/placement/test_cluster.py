"""The pools that a run file is run on."""

from tests.config.conftest import GRPO, pools_of


def test_on_ray_what_no_pool_claims_of_data_and_reward_has_a_pool(load):
    alone = load('[cluster]\nexecutor = "ray"\n')
    claimed = load(
        '[cluster]\nexecutor = "ray"\n[cluster.pools.train]\nroles = ["policy", "data"]\n'
    )
    local = load("")

    assert [(p.name, p.roles) for p in pools_of(alone).pools] == [
        ("main", ()),
        ("data", ("data", "reward")),
    ]
    assert [(p.name, p.roles) for p in pools_of(claimed).pools] == [
        ("train", ("policy", "data")),
        ("data", ("reward",)),
    ]
    assert [(p.name, p.roles) for p in pools_of(local).pools] == [("main", ())]


def test_layouts_lie_over_the_gpus_of_their_pools(load):
    run = load(
        "[cluster]\nmachines = '2x8xH100'\n"
        "[cluster.pools.a]\ngpus = 8\nworkers = 8\nroles = ['policy.train']\n"
        "layouts = {'policy.train' = 'fsdp8'}\n"
        "[cluster.pools.b]\ngpus = 4\nworkers = 4\nroles = ['policy.generate']\n"
        "layouts = {'policy.generate' = 'tp2 x dp2'}\n"
    )

    laid = {pool.name: (list(pool.ranks)[:1], dict(pool.layouts)) for pool in pools_of(run).pools}

    assert laid == {
        "a": ([0], {"policy.train": "fsdp8"}),
        "b": ([8], {"policy.generate": "tp2 x dp2"}),
    }


IDLE = """
[cluster]
executor = "ray"
[cluster.pools.compares]
gpus = 2
workers = 2
roles = ["reference"]
[cluster.pools.main]
gpus = 2
workers = 2
roles = ["policy"]
"""


def test_a_pool_that_only_unused_models_claim_is_not_there_and_takes_no_gpus(load):
    pools = pools_of(load(IDLE, "program.file=opo")).pools

    assert [(pool.name, list(pool.ranks)) for pool in pools] == [("main", [0, 1]), ("data", [])]
    assert [pool.name for pool in pools_of(load(IDLE)).pools] == ["compares", "main", "data"]


def test_the_pool_of_what_only_evaluations_sample_from_is_there(load):
    text = GRPO.replace('"grpo"\nsamples = 4', '"sft"')
    pool = IDLE.replace('["reference"]', '["policy.generate"]').replace(
        '["policy"]', '["policy.train"]'
    )

    names = {
        added: [p.name for p in pools_of(load(pool + added, text=text)).pools]
        for added in ("", "[eval]\n")
    }

    assert names == {"": ["main", "data"], "[eval]\n": ["compares", "main", "data"]}


def test_what_is_said_of_an_unused_model_lays_no_other_out(load, monkeypatch):
    monkeypatch.setattr("flowrl.config.placement.layouts.shape_of", lambda run, role: "known")
    shard = '[engines.reference.train]\nshard = "fsdp2"\n'
    laid = '[cluster.pools.compares.layouts]\nreference = "dp2"\n'

    assert pools_of(load(IDLE + shard)).layout_of("policy", "train") == "1"
    for added in (shard, laid):
        cluster = pools_of(load(IDLE + added, "program.file=opo"))
        assert [dict(pool.layouts) for pool in cluster.pools] == [{}, {}]
