"""How weights come to the engine that samples, as a run file and its program decide."""

import pytest

from flowrl.compiler.pipeline import compile_graph
from flowrl.config.check import cluster_of, trace_run
from flowrl.config.weights import How, Sync, syncs

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
        return syncs(run, compile_graph(trace_run(run).graph, cluster_of(run)))["policy"]

    return sync_of


@pytest.mark.parametrize("text", ["", RAY, GPU, GPU + VLLM, RAY + GPU + VLLM])
def test_a_trainer_computes_with_the_engines_tensors(text, sync_of):
    assert sync_of(text) == Sync(How.ALIAS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (VLLM, "vLLM packs its weights for the CPU"),
        (LORA, "an adapter trains, and it alone is sent"),
        (RAY + GPU.replace("gpus = 1", "workers = 2"), "pool `all` has 2 workers"),
        (GPU + "residencies = {policy = 'offload'}\n", "pool `all` has it `offload`"),
        (
            GPU + "residencies = {'policy.train' = 'offload'}\n",
            "its pool has `policy.train` `offload`",
        ),
    ],
)
def test_where_it_can_not_weights_are_copied_and_it_is_said_why(text, why, sync_of):
    assert sync_of(text) == Sync(How.COPY, why)


def test_between_pools_weights_are_transferred(sync_of):
    pools = "[cluster.pools.a]\nroles = ['policy.train']\n[cluster.pools.b]\nroles = ['policy.generate']\n"

    assert sync_of(RAY + pools).how is How.TRANSFER
    assert sync_of(pools) == Sync(How.ALIAS)  # one process


def test_between_layouts_weights_are_resharded(sync_of):
    layouts = "workers = 2\nroles = ['policy']\nlayouts = {'policy.generate' = 'tp2'}\n"

    assert sync_of(RAY + SHARD + "[cluster.pools.a]\n" + layouts).how is How.RESHARD
