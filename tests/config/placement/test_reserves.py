"""What engines reserve of GPUs: by the run file, or by who else lives in their pool."""

import pytest

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.forecast import forecast
from flowrl.compiler.simplify import simplify
from flowrl.compiler.target import Reserve
from flowrl.config.placement.reserves import reserve_of
from flowrl.config.planned import plan_run
from flowrl.config.traced import trace_run
from flowrl.train.predict import planned_as
from flowrl.train.prepare import lower
from tests.config.conftest import QWEN

VLLM = 'engines.policy.generate.engine="vllm"'
APART = """
[cluster]
machines = "2x1xH200"
executor = "{executor}"
[cluster.pools.trains]
gpus = 1
roles = ["policy.train"{beside}]
[cluster.pools.samples]
gpus = 1
roles = ["policy.generate"{with_it}]
"""


def apart(executor="ray", *, reference="trains"):
    claims = (', "reference"' if pool == reference else "" for pool in ("trains", "samples"))
    text = APART.replace("{executor}", executor)
    return text.replace("{beside}", next(claims)).replace("{with_it}", next(claims))


def reserve(run):
    return reserve_of(run, simplify(trace_run(run).graph, Cluster()), "policy")


@pytest.mark.parametrize(
    ("added", "share"),
    [
        (apart(), 0.9),
        (apart(reference="samples"), 0.4),
        (apart("local"), 0.4),  # all in one process
        ("[cluster]\nmachines = '8xH100'", 0.4),
    ],
)
def test_an_engine_that_is_alone_in_its_pool_reserves_more(load, added, share):
    assert reserve(load(added, VLLM)) == Reserve("vLLM", share)


def test_a_reference_that_nothing_reads_takes_no_room(load):
    added = apart(reference="samples")

    assert reserve(load(added, VLLM, "program.kl_coef=0")) == Reserve("vLLM", 0.9)


def test_what_the_run_file_says_is_reserved(load):
    table = "engines.policy.generate.vllm"

    given = load(apart(), VLLM, f"{table}.gpu_memory_utilization=0.25")
    cache = load(apart(), VLLM, f"{table}.kv_cache_gib=0.5")
    processor = load("[cluster]\nmachines = '1xCPU'", VLLM)

    assert reserve(given) == Reserve("vLLM", 0.25)
    assert reserve(cache) == Reserve("vLLM", 0.9, 2**29)
    assert reserve(processor) == Reserve("vLLM", 0.4, 2**30)


def test_an_engine_that_takes_what_it_needs_reserves_nothing(load):
    assert reserve(load(apart())) is None


def test_a_plan_counts_what_is_reserved_to_the_byte(load):
    run = load(apart(), VLLM, text=QWEN)

    memory = {str(of.seat): of for of in forecast(plan_run(run)[1]).memory}

    assert sum(memory["policy.generate"].items.values()) == round(0.9 * 143_771 * 2**20)


def test_a_run_is_planned_with_what_its_engine_is_started_with(load):
    run = load(apart(), VLLM, text=QWEN)
    lowered = lower(run)

    planned = planned_as(run, lowered, print)

    (share,) = lowered.models["policy"].generator_options.values()
    assert planned.target.workload.settings("policy").reserve == Reserve("vLLM", share)
