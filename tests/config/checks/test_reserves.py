"""What engines reserve of GPUs, held against what a plan puts beside it."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.planned import plan_run
from flowrl.errors import FlowrlError
from tests.config.conftest import QWEN

VLLM = 'engines.policy.generate.engine="vllm"'


ONE = """
[cluster]
machines = "1xH200"
[cluster.pools.main]
gpus = 1
roles = ["policy", "reference"]
residencies = { "policy.generate" = "resident", "policy.train" = "offload", reference = "offload" }
"""


def test_what_does_not_fit_beside_a_reserve_is_refused_with_the_key(load):
    sets = VLLM, "engines.policy.generate.vllm.gpu_memory_utilization=0.6"

    with pytest.raises(FlowrlError) as refused:
        plan_run(load(ONE, *sets, text=QWEN))

    assert str(refused.value) == snapshot("""\
the step doesn't fit on 1xH200: of all placements, the closest fit needs 28.9 GB more than the 143.2 GB of a GPU
  on 1 GPU, while policy.train (1, offload) works: weights 6.2 GB, gradients 12.3 GB, optimizer 37.0 GB, activations 20.4 GB, engine 0.6 GB, buffers 4.6 GB
  and meanwhile policy.generate (1, resident) 90.4 GB, reference.score (1, offload) 0.6 GB
help: leave pools, layouts and residency to the search: a step of 1.19 s; or leave residency to the search (1.19 s); or lower `gpu_memory_utilization` to 0.3 (2.95 s)\
""")


def test_a_reserve_that_does_not_hold_the_weights_is_refused(load):
    sets = VLLM, "engines.policy.generate.vllm.gpu_memory_utilization=0.04"

    with pytest.raises(FlowrlError) as refused:
        plan_run(load(ONE, *sets, text=QWEN))

    assert str(refused.value) == snapshot("""\
`policy.generate` (1): vLLM reserves 6.0 GB, 0.04 of the GPU; beside weights 6.2 GB and engine 2.0 GB, the cache for the longest sequence is 2.2 GB short
  --set engines.policy.generate.vllm.gpu_memory_utilization=0.04
help: raise `gpu_memory_utilization`, or divide the model over more GPUs (`tp`)\
""")
