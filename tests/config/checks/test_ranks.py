"""Workers that divide a model, and what their pool must be."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.ranks import check_ranks
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO

DIVIDED = "[engines.policy.train]\nshard = 'fsdp2'\n"
POOL = DIVIDED + "[cluster.pools.train]\nroles = ['policy']\n"


@pytest.fixture
def checked(load):
    """Check a run file with lines added at its end and sets."""

    def check(added, *sets, text=GRPO):
        run = load(added, *sets, text=text)
        check_ranks(run, simplify(trace_run(run).graph, Cluster()))
        return run

    return check


@pytest.fixture
def error_of(checked):
    """Return the text of the error that the check ends in."""

    def text_of(added, *sets, text=GRPO):
        with pytest.raises(RunFileError) as caught:
            checked(added, *sets, text=text)
        return str(caught.value)

    return text_of


def test_a_pool_of_workers_divides_a_model(checked):
    run = checked(POOL + "gpus = 4\nworkers = 4\nlayouts = {policy = 'fsdp4'}\n")

    assert run.engines.role("policy").train.shard == "fsdp2"


def test_replicas_of_divided_weights_fill_a_pool(checked):
    run = checked(POOL + "workers = 4\nlayouts = {policy = 'dp2 x fsdp2'}\n")

    assert run.cluster.pools["train"].layouts == {"policy": "dp2 x fsdp2"}


def test_workers_without_a_gpu_each(error_of):
    assert error_of(POOL + "gpus = 2\nworkers = 4\n") == snapshot("""\
pool `train` has 2 GPUs for 4 workers; each that has a share of `policy` needs a GPU of its own
  run.toml:24
   24 | gpus = 2
        ^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: set `gpus = 4`, or 0 for the CPU\
""")


def test_data_and_rewards_where_all_workers_do_the_same(error_of):
    pool = DIVIDED + "[cluster.pools.train]\nworkers = 2\nroles = ['policy', 'data']\n"

    assert error_of(pool) == snapshot("""\
pool `train` claims `data`, which is for one worker; those that divide `policy` all do the same work
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
the layout of `policy` is `tp2 x dp2`; divided by fsdp2 it is `fsdp4`, or `fsdp` x `dp` of as many ranks
  run.toml:26
   26 | layouts = {policy = 'tp2 x dp2'}
                   ^^^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: leave the layout out, or `shard`\
""")


@pytest.mark.parametrize("layout", ["dp4", "fsdp4 along tp", "tp2 x fsdp2"])
def test_other_layouts_that_fsdp2_does_not_make(layout, error_of):
    pool = POOL + f"workers = 4\nlayouts = {{policy = '{layout}'}}\n"

    assert f"the layout of `policy` is `{layout}`; divided by fsdp2" in error_of(pool)


def test_a_pool_that_claims_nothing_of_the_role_is_not_asked(checked):
    run = checked(POOL + "workers = 2\n[cluster.pools.rest]\nroles = ['data']\ngpus = 1\n")

    assert run.cluster.pools["rest"].gpus == 1


def test_a_pool_called_data_gets_what_no_pool_claims(error_of, checked):
    pool = "[cluster]\nexecutor = 'ray'\n[cluster.pools.data]\nroles = ['policy']\n"

    assert error_of(DIVIDED + pool + "workers = 2\n") == snapshot("""\
pool `data` gets `data` and `reward`, which no pool claims and which is for one worker; those that divide `policy` all do the same work
  run.toml:24
   24 | [cluster.pools.data]
                       ^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: give the pool another name\
""")
    assert checked(DIVIDED + pool).cluster.pools["data"].workers == 1


def test_functions_called_where_a_reward_model_called_reward_is_divided(error_of, checked):
    judge = "reward = { model = 'judge' }\n"
    ray = "[cluster]\nexecutor = 'ray'\n[cluster.pools.train]\nworkers = 2\n"
    text = GRPO.replace("[reward]\n", "[reward]\n" + judge)
    alone = GRPO.replace('exact = "reward.py:exact"\n', judge)

    assert error_of(DIVIDED + ray, text=text) == snapshot("""\
`reward` is a model, so `exact` scores in pool `train`, which is for one worker; those that divide `policy` all do the same work
  run.toml:15
   15 | reward = { model = 'judge' }
        ^^^^^^
  run.toml:22
   22 | shard = 'fsdp2'
        ^^^^^
help: let `reward` live in a pool of one worker, or give it another name\
""")
    assert error_of(DIVIDED + ray, text=alone) == snapshot("""\
`reward` is a model, so `reward` scores in pool `train`, which is for one worker; those that divide `policy` all do the same work
  run.toml:15
   15 | reward = { model = 'judge' }
        ^^^^^^
  run.toml:21
   21 | shard = 'fsdp2'
        ^^^^^
help: let `reward` live in a pool of one worker, or give it another name\
""")
    own = "[cluster.pools.judge]\nroles = ['reward']\n"
    assert checked(DIVIDED + ray + own, text=alone).reward.models == ["reward"]


RAY = POOL.replace("shard = 'fsdp2'\n", "").replace(
    "[cluster", "[cluster]\nexecutor = 'ray'\n[cluster", 1
)


def test_weights_without_a_shard_that_a_layout_divides(error_of):
    assert error_of(RAY + "workers = 4\nlayouts = {policy = 'fsdp4'}\n") == snapshot("""\
the layout of `policy` is `fsdp4`; without `shard` each worker has whole weights, `dp4`
  run.toml:26
   26 | layouts = {policy = 'fsdp4'}
                   ^^^^^^
help: set `shard = "fsdp2"` in [engines.policy.train], or leave the layout out\
""")


def test_workers_that_have_whole_weights_each_claim_no_data(error_of):
    pool = RAY.replace("['policy']", "['policy', 'data']")

    assert error_of(pool + "workers = 4\nlayouts = {policy = 'dp4'}\n") == snapshot("""\
pool `train` claims `data`, which is for one worker; those that divide `policy` all do the same work
  run.toml:24
   24 | roles = ['policy', 'data']
        ^^^^^
  run.toml:26
   26 | layouts = {policy = 'dp4'}
                   ^^^^^^
help: claim `data` in another pool, or in none\
""")


SAMPLED = "[cluster]\nexecutor = 'ray'\n[cluster.pools.a]\nroles = ['policy']\nworkers = 2\n"


@pytest.mark.parametrize("layout", ["fsdp2", "pp2", "ep2", "tp2+ep"])
def test_an_engine_that_samples_has_replicas_by_tensor_parallelism_alone(error_of, layout):
    told = error_of(SAMPLED + f"layouts = {{'policy.generate' = '{layout}'}}\n")

    assert told.replace(layout, "LAYOUT") == snapshot("""\
the layout of `policy.generate` is `LAYOUT`; what samples has replicas of `tp` ranks
  run.toml:25
   25 | layouts = {'policy.generate' = 'LAYOUT'}
                    ^^^^^^^^^^^^^^^
help: `tp2` is one replica, `dp2` has 2\
""")


APART = """
[models.critic]
path = "model"
[engines.{0}.train]
shard = "fsdp2"
[cluster]
executor = "ray"
[cluster.pools.other]
roles = ["{0}", "data"]
workers = 2
layouts = {{ "{0}.generate" = "pp2" }}
"""


def test_models_that_nothing_reads_are_not_divided(checked, error_of):
    reference, critic = APART.format("reference"), APART.format("critic")

    assert checked(critic).engines.divided == ["critic"]
    assert checked(reference, "program.kl_coef=0").engines.divided == ["reference"]
    assert "those that divide `reference` all do the same work" in error_of(reference)
    assert "the layout of `reference.generate` is `pp2`" in error_of(reference)
