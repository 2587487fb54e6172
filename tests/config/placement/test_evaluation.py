"""An engine that only evaluations use: where it lives, what it takes, and how weights come."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.forecast import forecast
from flowrl.config.placement.weights import How, Placed, syncs
from flowrl.config.planned import plan_run
from flowrl.errors import RunFileError
from flowrl.report.plan import plan_lines
from flowrl.train.predict import planned_as
from flowrl.train.prepare import lower
from tests.config.conftest import GRPO

H200 = 143_771 * 2**20
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
EVAL = """
[eval]
samples = 4
prompts = 50
[eval.data]
source = "heldout.jsonl"
"""
VLLM = 'engines.policy.generate.engine="vllm"'
ONE = """
[cluster]
machines = "1xH200"
executor = "{executor}"
[cluster.pools.main]
gpus = 1
roles = ["policy"]
residencies = {{ {kept} }}
"""
APART = """
[cluster]
machines = "2x1xH200"
executor = "ray"
[cluster.pools.trains]
gpus = 1
roles = ["policy.train"]
[cluster.pools.samples]
gpus = 1
roles = ["policy.generate"]
"""

ALONE = APART[: APART.index("[cluster.pools.samples]")]


@pytest.fixture
def planned(load):
    """Return a function that plans SFT with an evaluation, on some cluster."""

    def plan(cluster, *sets, evaluation=EVAL):
        return plan_run(load(cluster + evaluation, *sets, text=SFT))[1]

    return plan


def memory(planned):
    return {str(of.seat): of for of in forecast(planned).memory}


@pytest.mark.parametrize(
    ("executor", "kept", "engine", "taken"),
    [
        ("local", "", "vllm", 0.4 * H200),
        ("ray", "", "vllm", 0.4 * H200),
        ("local", "", "hf", 4 * 494_032_768),  # weights of its own
        ("ray", '"policy.generate" = "offload"', "vllm", 2e9),
    ],
)
def test_it_is_counted_beside_the_trainer(executor, kept, engine, taken, planned):
    cluster = ONE.format(executor=executor, kept=kept)

    without = memory(planned(cluster, evaluation=""))["policy.train"]
    beside = memory(planned(cluster, f'engines.policy.generate.engine="{engine}"'))["policy.train"]

    assert beside.total - without.total == round(taken)


@pytest.mark.parametrize(
    ("kept", "taken"),
    [
        ("", 0.4 * H200),
        ('"policy.generate" = "offload"', 2e9),
        ('"policy.train" = "offload"', 0.4 * H200),
    ],
)
def test_it_is_counted_once_while_another_model_works(kept, taken, load):
    text = SFT.replace('"sft"', '"dpo"')
    pool = ONE.format(executor="ray", kept=kept).replace('"policy"]', '"policy", "reference"]')
    reference = '[models.reference]\npath = "Qwen/Qwen2.5-0.5B"\n'

    without = memory(plan_run(load(reference + pool, text=text))[1])["reference.score"]
    beside = memory(plan_run(load(reference + pool + EVAL, VLLM, text=text))[1])["reference.score"]

    assert beside.total - without.total == round(taken)


def test_in_a_pool_of_its_own_it_takes_what_it_reserves_there(planned):
    apart, alone = planned(APART, VLLM), planned(ALONE, evaluation="")

    own = memory(apart)["policy.generate"]
    assert own.pool == "samples"
    assert own.total == round(0.9 * H200)
    assert memory(apart)["policy.train"] == memory(alone)["policy.train"]


def test_its_samples_and_weights_take_time_beside_the_step(planned):
    apart, alone = planned(APART, VLLM), planned(ALONE, evaluation="")

    sampled = forecast(apart).evaluation
    assert (sampled.prompts, sampled.sequences) == (50, 250)  # 4 samples and a greedy one
    assert sampled.seconds > 0
    assert sampled.bytes == 4 * 494_032_768
    assert forecast(apart).seconds == forecast(alone).seconds
    assert forecast(alone).evaluation is None


def test_a_run_is_predicted_with_it_too(load):
    run = load(APART + EVAL, VLLM, text=SFT)
    lowered = lower(run)

    said = []
    predicted = forecast(planned_as(run, lowered, said.append))

    assert (predicted.evaluation.sequences, said) == (250, [])
    assert syncs(run, Placed.by_run_file(run, lowered.graph))["policy"].how is How.TRANSFER


def test_an_engine_that_trains_samples_has_no_evaluation_of_its_own(load):
    both = (f'models.{role}.path="Qwen/Qwen2.5-0.5B"' for role in ("policy", "reference"))
    text = GRPO.replace("exact", "reward")
    run = load("[cluster]\nmachines = '8xH100'" + EVAL, *both, text=text)

    assert plan_run(run)[1].evaluation is None


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (
            ONE.format(executor="local", kept=""),
            snapshot(
                [
                    "  policy.generate  1  resident  for evaluations alone: vLLM reserves 60.3 GB, 0.4 of the GPU",
                    "`policy`: weights are copied into its generator: only evaluations sample from it",
                    "an evaluation of 50 prompts: 250 samples take 1.77 s, and their weights 0.6 ms (0 B over links)",
                    "  policy.generate  [WKKKKKKKKKKKKKKKEzz.....................]  66.8 GB of 143 GB  weights 1.98 GB, kv cache 56.1 GB, engine 2 GB, buffers 182 MB; asleep: policy.train 6.53 GB",
                ]
            ),
        ),
        (
            APART,
            snapshot(
                [
                    "  policy.generate  1  resident  for evaluations alone: vLLM reserves 135.7 GB, 0.9 of the GPU",
                    "`policy`: weights are resharded into its generator: pool `trains` trains it, pool `samples` samples from it; only evaluations sample from it",
                    "an evaluation of 50 prompts: 250 samples take 1.77 s, and their weights 0.06 s (1.98 GB over links)",
                    "  policy.generate  [WKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKE..]  136 GB of 143 GB   weights 1.98 GB, kv cache 132 GB, engine 2 GB, buffers 182 MB",
                ]
            ),
        ),
    ],
)
def test_a_plan_says_where_it_is_and_what_it_takes(cluster, said, load):
    run = load(cluster + EVAL, VLLM, text=SFT)

    lines = plan_lines(run, plan_run(run)[1])

    words = "policy.generate  ", "weights are", "an evaluation"
    assert [line for line in lines if any(word in line for word in words)] == said


def test_a_pool_that_the_machines_have_no_gpus_for_is_told(planned):
    cluster = APART.replace("2x1xH200", "1x2xH200").replace("gpus = 1", "gpus = 0", 1)
    cluster = cluster.replace("gpus = 1", "gpus = 2\nworkers = 2")

    with pytest.raises(RunFileError) as refused:
        planned(cluster, VLLM)

    assert str(refused.value) == snapshot("""\
pool `samples`, which only evaluations use, has 2 GPUs; the step leaves fewer free on 2xH200
  run.toml:21
   21 | gpus = 2
        ^^^^
help: give every pool its `gpus`, or name more machines\
""")


def test_one_that_a_gpu_can_not_hold_beside_others_is_told(load):
    frozen = '[models.reference]\npath = "Qwen/Qwen2.5-7B"\n'
    cluster = APART.replace('"policy.generate"', '"policy.generate", "reference"')
    share = "engines.policy.generate.vllm.gpu_memory_utilization=0.9"
    run = load(frozen + cluster + EVAL, VLLM, share, text=SFT.replace("sft", "dpo"))

    with pytest.raises(RunFileError) as refused:
        plan_run(run)

    assert str(refused.value) == snapshot("""\
`policy.generate`, which only evaluations use, doesn't fit in pool `samples`: while `reference.score` works, 169.6 GB of a GPU's 143.2 GB are taken: weights 30.5 GB, activations 0.7 GB, engine 0.6 GB, buffers 2.4 GB, policy.generate 135.5 GB
  run.toml:26
   26 | [eval]
         ^^^^
help: claim it in a pool of its own, with the executor `ray`, or let it reserve less\
""")


def test_a_pool_of_a_model_that_only_evaluations_ask_needs_no_seat(planned):
    judged = APART + '[cluster.pools.judges]\ngpus = 1\nroles = ["quality"]\n'
    machines = 'cluster.machines="3x1xH200"'
    judge = 'reward={quality={model="Qwen/Qwen2.5-0.5B"}}'

    assert planned(judged, VLLM, machines, judge).evaluation.pool == "samples"
