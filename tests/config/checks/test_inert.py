"""Tables that change nothing are said."""

from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.inert import inert_keys
from flowrl.config.traced import trace_run
from flowrl.stages import Traced
from tests.config.conftest import GRPO

ADDED = """
[optimizer]
learning_rate = 1e-5

[optimizer.reference]
eps = 1e-6

[optimizer.policy]
eps = 1e-6

[engines.reference.generate]
max_tokens = 4

[engines.reference.train]
tokens_per_microbatch = 64

[engines.policy.generate]
max_tokens = 4

[reward.other]
function = "reward.py:other"

[cluster.pools.main]
workers = 2
"""


def said(run):
    traced = trace_run(run)
    assert isinstance(traced, Traced)
    return inert_keys(run, simplify(traced.graph, Cluster()))


def test_tables_that_no_op_reads_are_said_with_their_line(load):
    sets = ("program.file=grpo", "reward.reward=reward.py:exact", "reward.third=reward.py:third")

    assert said(load(ADDED, *sets)) == snapshot(
        [
            "[optimizer.reference] changes nothing: the program doesn't update `reference` (run.toml:24).",
            "[engines.reference.generate] changes nothing: the program doesn't sample from `reference` (run.toml:30).",
            "[reward.exact] changes nothing: the program doesn't score by it (run.toml:15).",
            "[reward.other] changes nothing: the program doesn't score by it (run.toml:39).",
            "[reward.third] changes nothing: the program doesn't score by it (--set reward.third=reward.py:third).",
            '[cluster.pools] changes nothing: `cluster.executor` is "local", one process (run.toml:42).',
        ]
    )


def test_the_pool_of_one_process_says_whether_it_has_a_gpu(load):
    assert not any("[cluster.pools]" in line for line in said(load(ADDED + "gpus = 1\n")))


def test_what_an_evaluation_reads_is_not_inert(load):
    evaluated = said(load(ADDED + "[eval]\nreward = 'other'\n", "reward.reward=reward.py:exact"))

    assert not any("[reward.other]" in line for line in evaluated)


def test_pools_on_ray_are_read(load):
    lines = said(load(ADDED, "cluster.executor=ray", "reward.reward=reward.py:exact"))

    assert not any("[cluster.pools]" in line for line in lines)


def test_what_one_worker_would_divide_is_said(load):
    text = "[cluster]\nexecutor = 'ray'\n[engines.policy.train]\nshard = 'fsdp2'\noffload = 'all'\n"
    pool = "[cluster.pools.train]\nroles = ['policy']\nworkers = 2\n"

    assert [line for line in said(load(text)) if "engines" in line] == snapshot(
        [
            "[engines.policy.train.shard] changes nothing: pool `main` has one worker (run.toml:23).",
            "[engines.policy.train.offload] changes nothing: pool `main` has one worker (run.toml:24).",
        ]
    )
    assert not any("engines" in line for line in said(load(text + pool)))
    local = said(load(text, "cluster.executor=local"))
    assert [line for line in local if "engines" in line] == snapshot(
        [
            '[engines.policy.train.shard] changes nothing: `cluster.executor` is "local", one process (run.toml:23).',
            '[engines.policy.train.offload] changes nothing: `cluster.executor` is "local", one process (run.toml:24).',
        ]
    )


def test_moments_of_a_model_that_is_not_trained_are_said(load):
    text = "[engines.{}.train]\noffload = 'optimizer'\n"

    assert [line for line in said(load(text.format("reference"))) if "engines" in line] == snapshot(
        [
            "[engines.reference.train.offload] changes nothing: the program doesn't update `reference` (run.toml:21)."
        ]
    )
    assert not any("engines" in line for line in said(load(text.format("policy"))))


def test_settings_of_models_that_nothing_reads_are_said_once(load):
    text = (
        "[models.critic]\npath = 'model'\n[models.critic.lora]\n"
        "[engines.reference.train]\nshard = 'fsdp2'\n"
        "[cluster]\nexecutor = 'ray'\n"
        "[cluster.pools.main]\nroles = ['policy', 'reference']\nworkers = 2\n"
        "layouts = {'reference.train' = 'fsdp2'}\nresidencies = {reference = 'offload'}\n"
    )
    grpo = GRPO.replace("exact =", "reward =")

    assert said(load(text, "program.kl_coef=0", text=grpo)) == snapshot(
        [
            "`critic` is never read and never loaded: `grpo` has no such model (run.toml:20).",
            "[models.critic.lora] changes nothing: the program never reads `critic` (run.toml:22).",
            "[engines.reference.train.shard] changes nothing: the program never reads `reference` (run.toml:24).",
            "[cluster.pools.main.layouts.reference.train] changes nothing: the program never reads `reference` (run.toml:30).",
            "[cluster.pools.main.residencies.reference] changes nothing: the program never reads `reference` (run.toml:31).",
        ]
    )
    assert not any("reference" in line for line in said(load(text, text=grpo)))


def test_layouts_and_residencies_of_uses_that_models_do_not_have_are_said(load):
    pool = (
        "[cluster]\nexecutor = 'ray'\n"
        "[cluster.pools.main]\nroles = ['policy', 'reference']\n"
        "layouts = {'policy.train' = '1', 'reference.generate' = '1'}\n"
        "residencies = {'policy.score' = 'offload', 'reference.train' = 'offload'}\n"
    )

    assert [line for line in said(load(pool)) if "pools" in line] == snapshot(
        [
            "[cluster.pools.main.layouts.reference.generate] changes nothing: the program doesn't sample from `reference` (run.toml:24).",
            "[cluster.pools.main.residencies.policy.score] changes nothing: the program doesn't run `policy` forward (run.toml:25).",
        ]
    )


def test_what_an_evaluation_samples_from_may_have_a_residency(load):
    pool = (
        "[cluster]\nexecutor = 'ray'\n[cluster.pools.main]\nroles = ['reference']\n"
        "residencies = {'reference.generate' = 'offload'}\n[eval]\n"
    )

    assert not [line for line in said(load(pool)) if "pools" in line]


def test_a_pool_in_which_nothing_lives_is_said_where_it_takes_workers(load):
    pools = """
[cluster.pools.main]
roles = ["policy.train", "reference.train"]
[cluster.pools.samples]
roles = ["policy.generate"]
[cluster.pools.idle]
roles = ["reference.generate"]
"""

    assert said(load(f'[cluster]\nexecutor = "ray"\n{pools}')) == snapshot(
        [
            "[reward.exact] changes nothing: the program doesn't score by it (run.toml:15).",
            "[cluster.pools.idle] changes nothing: nothing that the program does lives there (run.toml:27).",
        ]
    )


def test_gpus_that_ray_sets_aside_for_no_model_are_said(load):
    pools = """
[cluster]
executor = "EXECUTOR"
[cluster.pools.main]
gpus = 1
roles = ["policy"]
[cluster.pools.compares]
gpus = 1
roles = ["reference.train", "data"]
[cluster.pools.idle]
gpus = 1
roles = ["reference.generate"]
"""

    def of_pools(executor, *sets):
        found = said(load(pools.replace("EXECUTOR", executor), *sets))
        return [line for line in found if "pools" in line]

    assert of_pools("ray", "program.file=opo") == snapshot(
        [
            "[cluster.pools.idle] changes nothing: nothing that the program does lives there (run.toml:29).",
            "[cluster.pools.compares.gpus] sets GPUs aside for data and rewards alone: no model that the program runs lives there (run.toml:27).",
        ]
    )
    assert (
        of_pools("local", "program.file=opo")
        == of_pools("ray")
        == snapshot(
            [
                "[cluster.pools.idle] changes nothing: nothing that the program does lives there (run.toml:29)."
            ]
        )
    )


def test_what_evaluations_sample_from_is_the_trained_model_alone(load):
    rows = "[eval]\n[engines.{}.generate]\nmax_tokens = 4\n"
    text = GRPO.replace('"grpo"\nsamples = 4', '"sft"')

    assert not any("engines" in line for line in said(load(rows.format("policy"), text=text)))
    assert [
        line for line in said(load(rows.format("reference"), text=text)) if "engines" in line
    ] == snapshot(
        [
            "[engines.reference.generate] changes nothing: the program doesn't sample from `reference` (run.toml:20)."
        ]
    )
