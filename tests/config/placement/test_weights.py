"""How weights come to the engine that samples, as a run file and its program decide."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.pipeline import compile_graph
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.weights import How, Sync, sync_sentences, syncs
from flowrl.config.planned import plan_run
from flowrl.config.traced import trace_run
from tests.config.conftest import pools_of

RAY = '[cluster]\nexecutor = "ray"\n'
GPU = "[cluster.pools.all]\ngpus = 1\nroles = ['policy', 'reference']\n"
VLLM = '[engines.policy.generate]\nengine = "vllm"\n'
LORA = "[models.policy.lora]\nrank = 4\n"
SHARD = '[engines.policy.train]\nshard = "fsdp2"\n'


@pytest.fixture
def sync_of(load):
    """Return a function that says how the policy's weights move in a run."""

    def sync_of(text=""):
        run = load(text)
        graph = compile_graph(trace_run(run).graph, pools_of(run))
        return syncs(run, Placed.by_run_file(run, graph))["policy"]

    return sync_of


@pytest.mark.parametrize("text", ["", RAY, GPU, GPU + VLLM, RAY + GPU + VLLM])
def test_a_trainer_computes_with_the_engines_tensors(text, sync_of):
    assert sync_of(text) == Sync(How.ALIAS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (VLLM, "vLLM packs its weights for the CPU"),
        (LORA, "only its adapter trains and is sent"),
        (RAY + GPU.replace("gpus = 1", "workers = 2"), "pool `all` has 2 workers"),
        (GPU + "residencies = {policy = 'offload'}\n", "its residency in pool `all` is `offload`"),
        (
            GPU + "residencies = {'policy.train' = 'offload'}\n",
            "the residency of `policy.train` is `offload`",
        ),
    ],
)
def test_where_it_can_not_weights_are_copied_and_it_is_said_why(text, why, sync_of):
    assert sync_of(text) == Sync(How.COPY, why)


def test_between_pools_weights_are_transferred(sync_of):
    pools = "[cluster.pools.a]\nroles = ['policy.train']\n[cluster.pools.b]\nroles = ['policy.generate']\n"

    why = "pool `a` trains it, pool `b` samples from it"
    assert sync_of(RAY + pools) == Sync(How.TRANSFER, why)
    assert sync_of(pools) == Sync(How.ALIAS)  # one process


def test_between_layouts_weights_are_resharded(sync_of):
    layouts = "workers = 2\nroles = ['policy']\nlayouts = {'policy.generate' = 'tp2'}\n"

    why = "it trains as `fsdp2` and samples as `tp2`"
    assert sync_of(RAY + SHARD + "[cluster.pools.a]\n" + layouts) == Sync(How.RESHARD, why)


QWEN = (
    *(f"models.{role}.path=Qwen/Qwen2.5-0.5B" for role in ("policy", "reference")),
    'reward={reward="reward.py:exact"}',
)
GPT2 = {"model_type": "gpt2", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
GPT2 |= {"vocab_size": 99, "max_position_embeddings": 4096}
KEPT = "roles = ['policy', 'reference']\nresidencies = {'policy.generate' = 'resident'}\n"
APART = "roles = ['policy.train', 'reference']\n[cluster.pools.b]\nroles = ['policy.generate']\n"


@pytest.mark.parametrize(
    ("machines", "text", "sync"),
    [
        ("1xH100", "", Sync(How.ALIAS)),
        ("1xH100", VLLM, Sync(How.ALIAS)),
        (
            "1xH100",
            "[cluster.pools.all]\n" + KEPT,
            Sync(How.COPY, "its residency in pool `all` is `resident`"),
        ),
        (
            "2xH100",
            "[cluster.pools.all]\ngpus = 2\nworkers = 2\n"
            "roles = ['policy', 'reference']\nlayouts = {policy = 'dp2', reference = 'dp2'}\n",
            Sync(How.COPY, "pool `all` has 2 workers"),
        ),
        (
            "2x1xH100",
            "[cluster.pools.a]\n" + APART,
            Sync(How.RESHARD, "pool `a` trains it, pool `b` samples from it"),
        ),
    ],
)
def test_a_plan_says_the_way_of_weights_by_what_it_has_chosen(machines, text, sync, load):
    run = load(text, *QWEN, f"cluster.machines={machines}")

    plan = plan_run(run)[1]

    assert syncs(run, Placed.by_plan(plan))["policy"] == sync
    kept = {str(seat): its.residency for seat, its in plan.found.seats.items()}
    assert (kept["policy.generate"] == "alias") == (sync.how is How.ALIAS)


def test_weights_that_an_engine_can_not_lend_are_planned_as_copies(load):
    run = load(VLLM, QWEN[-1], "cluster.machines=1xH100")
    run.resolve("model").mkdir()
    (run.resolve("model") / "config.json").write_text(json.dumps(GPT2))

    plan = plan_run(run)[1]

    assert "alias" not in {its.residency for its in plan.found.seats.values()}
    assert sync_sentences(run, Placed.by_plan(plan)) == snapshot(
        [
            "`policy`: weights are copied into its generator: vLLM has `transformer.h.0.attn.c_attn.weight` transposed"
        ]
    )
