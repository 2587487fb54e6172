"""Workers that divide a model, and what their pool must be."""

from inline_snapshot import snapshot

DIVIDED = "[engines.policy.train]\nshard = 'fsdp2'\n"
POOL = DIVIDED + "[cluster.pools.train]\nroles = ['policy']\n"


def test_a_pool_of_workers_divides_a_model(load):
    run = load(POOL + "gpus = 4\nworkers = 4\nlayouts = {policy = 'fsdp4'}\n")

    assert run.engines.role("policy").train.shard == "fsdp2"


def test_workers_without_a_gpu_each(error_of):
    assert error_of(POOL + "gpus = 4\nworkers = 2\n") == snapshot("""\
pool `train` has 4 GPUs for 2 workers; each that has a share of `policy` needs a GPU of its own
  run.toml:24
   24 | gpus = 4
        ^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: set `workers = 4`\
""")


def test_data_and_rewards_where_all_workers_do_the_same(error_of):
    pool = DIVIDED + "[cluster.pools.train]\nworkers = 2\nroles = ['policy', 'data']\n"

    assert error_of(pool) == snapshot("""\
pool `train` claims `data`, which is for one worker; those that divide `policy` all do the same
  run.toml:24
   24 | roles = ['policy', 'data']
        ^^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: claim `data` in another pool, or in none\
""")


def test_a_layout_that_is_not_what_fsdp2_makes(error_of):
    pool = POOL + "gpus = 4\nworkers = 4\nlayouts = {policy = 'tp2 x dp2'}\n"

    assert error_of(pool) == snapshot("""\
the layout of `policy` is `tp2 x dp2`; divided by fsdp2 it is `fsdp4`
  run.toml:26
   26 | layouts = {policy = 'tp2 x dp2'}
                   ^^^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: leave the layout out, or `shard`\
""")


def test_a_pool_that_claims_nothing_of_the_role_is_not_asked(load):
    run = load(POOL + "workers = 2\n[cluster.pools.rest]\nroles = ['data']\ngpus = 3\n")

    assert run.cluster.pools["rest"].gpus == 3
