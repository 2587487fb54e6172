"""What engines reserve of GPUs: by the run file, or by who else lives in their pool."""

import pytest

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.forecast import forecast
from flowrl.compiler.simplify import simplify
from flowrl.compiler.target import Reserve
from flowrl.config.placement.reserves import reserve_of
from flowrl.config.planned import plan_run
from flowrl.config.traced import trace_run
from flowrl.report.placement import pool_lines
from flowrl.train.predict import planned_as
from flowrl.train.prepare import lower
from tests.config.conftest import GRPO

QWEN = GRPO.replace('path = "model"', 'path = "Qwen/Qwen2.5-3B"\ndtype = "bfloat16"')
QWEN = QWEN.replace("exact =", "reward =")
SFT = """
[program]
file = "sft"
[models.policy]
path = "Qwen/Qwen2.5-0.5B"
[data]
source = "train.jsonl"
[reward]
reward = "reward.py:exact"
[train]
steps = 100
prompts_per_step = 6
"""
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


@pytest.mark.parametrize(
    ("executor", "kept", "share"),
    [("local", "", 0.4), ("ray", "", 0.4), ("ray", '"policy.generate" = "offload"', 0)],
)
def test_an_engine_that_only_evaluates_is_counted_beside_the_trainer(executor, kept, share, load):
    pool = f'gpus = 1\nroles = ["policy"]\nresidencies = {{ {kept} }}\n'
    added = f"""
[cluster]
machines = "1xH200"
executor = "{executor}"
[cluster.pools.main]
{pool}"""
    evaluation = '[eval.data]\nsource = "heldout.jsonl"\n'

    trains = plan_run(load(added, VLLM, text=SFT))[1]
    evaluated = plan_run(load(added + evaluation, VLLM, text=SFT))[1]

    assert beside(evaluated) - beside(trains) == round(share * 143_771 * 2**20)


def beside(planned):
    """Return the bytes of a trainer's process that no op of the step takes."""
    (memory,) = forecast(planned).memory
    return memory.items["engine"]


def test_a_plan_says_what_is_reserved_for_evaluations(load):
    run = load(
        "[eval.data]\nsource = 'heldout.jsonl'\n[cluster]\nmachines = '1xH200'", VLLM, text=SFT
    )

    said = "for evaluations vLLM reserves 60.3 GB, 0.4 of the GPU"

    assert any(said in line for line in pool_lines(plan_run(run)[1]))
