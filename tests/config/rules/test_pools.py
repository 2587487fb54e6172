"""Layouts and machines, against the pools that have them."""

from inline_snapshot import snapshot

from tests.config.conftest import pools_of

POOL = "[cluster.pools.train]\ngpus = 8\nworkers = 8\nroles = ['policy']\n"


def test_a_layout_that_is_none(error_of):
    assert error_of(POOL + "layouts = {policy = 'fdsp8'}\n") == snapshot("""\
`fdsp8` is not a layout: `fdsp8` (did you mean `fsdp`?)
  run.toml:24
   24 | layouts = {policy = 'fdsp8'}
                   ^^^^^^
help: the axes are pp, tp, ep, fsdp, dp; write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
""")


def test_a_layout_of_another_size(error_of):
    assert error_of(POOL + "layouts = {policy = 'tp2 x dp2'}\n") == snapshot("""\
layout `tp2 x dp2` is of 4 ranks; pool `train` has 8 workers
  run.toml:24
   24 | layouts = {policy = 'tp2 x dp2'}
                   ^^^^^^
  run.toml:22
   22 | workers = 8
        ^^^^^^^
help: the product of a layout's axes is the number of workers of its pool\
""")


def test_layouts_lie_over_the_workers_of_pools_without_gpus(load, error_of):
    pool = "[cluster.pools.train]\nroles = ['policy']\nlayouts = {policy = 'fsdp4'}\n"

    run = load(pool + "workers = 4\n")

    assert pools_of(run).pools[0].layouts == {"policy": "fsdp4"}
    assert error_of(pool) == snapshot("""\
layout `fsdp4` is of 4 ranks; pool `train` has 1 worker
  run.toml:22
   22 | layouts = {policy = 'fsdp4'}
                   ^^^^^^
  run.toml:20
   20 | [cluster.pools.train]
                       ^^^^^
help: the product of a layout's axes is the number of workers of its pool\
""")


def test_ranks_of_a_layout_that_share_gpus(error_of):
    pool = "[cluster.pools.train]\nroles = ['policy']\nlayouts = {policy = 'fsdp4'}\n"

    assert error_of(pool + "workers = 4\ngpus = 2\n") == snapshot("""\
layout `fsdp4` is of 4 ranks, each with a GPU of its own; pool `train` has 2 GPUs for 4 workers
  run.toml:22
   22 | layouts = {policy = 'fsdp4'}
                   ^^^^^^
  run.toml:24
   24 | gpus = 2
        ^^^^
help: set `gpus = 4`, or 0 for the CPU\
""")


def test_more_gpus_than_workers(error_of, load):
    pool = "[cluster.pools.train]\ngpus = 2\n"

    assert error_of(pool) == snapshot("""\
pool `train` has 2 GPUs for 1 worker; a worker uses one GPU
  run.toml:21
   21 | gpus = 2
        ^^^^
  run.toml:20
   20 | [cluster.pools.train]
                       ^^^^^
help: set `workers = 2`\
""")
    load(pool + "workers = 4\n")


def test_gpus_that_workers_cannot_share(error_of):
    assert error_of("[cluster.pools.train]\ngpus = 2\nworkers = 3\n") == snapshot("""\
pool `train`: 3 workers can't share 2 GPUs evenly
  run.toml:22
   22 | workers = 3
        ^^^^^^^
  run.toml:21
   21 | gpus = 2
        ^^^^
help: make `workers` a multiple of `gpus`\
""")


def test_a_layout_of_what_the_pool_has_not(error_of):
    assert error_of(POOL + "layouts = {critic = 'fsdp8'}\n") == snapshot("""\
pool `train` lays out `critic`, which it does not claim
  run.toml:24
   24 | layouts = {critic = 'fsdp8'}
                   ^^^^^^
help: its roles are policy\
""")


def test_machines_that_are_none(error_of):
    assert error_of("[cluster]\nmachines = '8xH10'\n") == snapshot("""\
unknown GPU `H10` in `8xH10` (did you mean `H100`?)
  run.toml:21
   21 | machines = '8xH10'
        ^^^^^^^^
help: known are A100-40G, A100-80G, H100, H200, B200, L40S, A10, RTX4090, CPU\
""")


def test_a_residency_of_what_the_pool_has_not(error_of):
    assert error_of(POOL + "residencies = {critic = 'drop'}\n") == snapshot("""\
pool `train` has a residency of `critic`, which it does not claim
  run.toml:24
   24 | residencies = {critic = 'drop'}
                       ^^^^^^
help: its roles are policy\
""")


def test_a_residency_that_is_none(error_of):
    assert error_of(POOL + "residencies = {policy = 'asleep'}\n") == snapshot("""\
`cluster.pools.train.residencies.policy` must be one of "resident", "offload", "drop", "alias"; got "asleep"
  run.toml:24
   24 | residencies = {policy = 'asleep'}
                       ^^^^^^\
""")


def test_a_layout_or_a_residency_of_a_use_that_is_none(error_of):
    pool = "[cluster.pools.train]\nroles = ['policy']\n"

    assert error_of(pool + "layouts = {'policy.sample' = '1'}\n") == snapshot("""\
pool `train` lays out `policy.sample`; `sample` is not a use of a model
  run.toml:22
   22 | layouts = {'policy.sample' = '1'}
                    ^^^^^^^^^^^^^
help: uses are `train`, `score`, `generate`\
""")
    assert error_of(pool + "residencies = {'policy.generat' = 'drop'}\n") == snapshot("""\
pool `train` has a residency of `policy.generat`; `generat` is not a use of a model (did you mean `generate`?)
  run.toml:22
   22 | residencies = {'policy.generat' = 'drop'}
                        ^^^^^^^^^^^^^^
help: uses are `train`, `score`, `generate`\
""")


def test_data_have_no_residency(error_of):
    pool = "[cluster.pools.train]\nroles = ['policy', 'data']\n"

    assert error_of(pool + "residencies = {data = 'offload'}\n") == snapshot("""\
pool `train` has a residency of `data`, which is not a model
  run.toml:22
   22 | residencies = {data = 'offload'}
                       ^^^^
help: leave it out\
""")


def test_gpus_of_a_ray_that_runs_already(error_of):
    assert error_of("[cluster]\naddress = 'head:6379'\nnum_gpus = 8\n") == snapshot("""\
`cluster.num_gpus` is for a Ray that flowrl starts; the one at `cluster.address` = "head:6379" knows its own
  run.toml:22
   22 | num_gpus = 8
        ^^^^^^^^
  run.toml:21
   21 | address = 'head:6379'
        ^^^^^^^
help: leave one of them out\
""")
