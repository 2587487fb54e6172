"""The pools that a run file is run on."""

from flowrl.config.placement.cluster import cluster_of


def test_on_ray_what_no_pool_claims_of_data_and_reward_has_a_pool(load):
    alone = load('[cluster]\nexecutor = "ray"\n')
    claimed = load(
        '[cluster]\nexecutor = "ray"\n[cluster.pools.train]\nroles = ["policy", "data"]\n'
    )
    local = load("")

    assert [(p.name, p.roles) for p in cluster_of(alone).pools] == [
        ("main", ()),
        ("data", ("data", "reward")),
    ]
    assert [(p.name, p.roles) for p in cluster_of(claimed).pools] == [
        ("train", ("policy", "data")),
        ("data", ("reward",)),
    ]
    assert [(p.name, p.roles) for p in cluster_of(local).pools] == [("main", ())]


def test_layouts_lie_over_the_gpus_of_their_pools(load):
    run = load(
        "[cluster]\nmachines = '2x8xH100'\n"
        "[cluster.pools.a]\ngpus = 8\nworkers = 8\nroles = ['policy.train']\n"
        "layouts = {'policy.train' = 'fsdp8'}\n"
        "[cluster.pools.b]\ngpus = 4\nworkers = 4\nroles = ['policy.generate']\n"
        "layouts = {'policy.generate' = 'tp2 x dp2'}\n"
    )

    pools = {
        pool.name: (list(pool.ranks)[:1], dict(pool.layouts)) for pool in cluster_of(run).pools
    }

    assert pools == {
        "a": ([0], {"policy.train": "fsdp8"}),
        "b": ([8], {"policy.generate": "tp2 x dp2"}),
    }
