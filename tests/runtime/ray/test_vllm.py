"""vLLM in a worker of Ray: beside a trainer of one rank, and of several; and in several."""

from importlib.util import find_spec

import pytest

from tests.runtime.ray.conftest import POOLS, RANKS, known
from tests.train.conftest import SCORED, Folder, make_model, make_tokenizer  # noqa: F401

pytestmark = [
    pytest.mark.usefixtures("kept"),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
]

VLLM = ('engines.policy.generate.engine="vllm"', "engines.policy.generate.vllm.kv_cache_gib=0.1")

DIVIDED = RANKS + 'workers = 2\nlayouts = { "policy.generate" = "tp2" }\n'


@pytest.fixture(scope="module")
def policy(make_model):  # noqa: F811
    """Return the folder of a model whose heads are wide enough for vLLM, its head tied."""
    return make_model(make_tokenizer(), hidden_size=64, tie_word_embeddings=True)


@pytest.mark.parametrize("added", [POOLS, RANKS, DIVIDED])
def test_a_run_is_that_of_one_process(tmp_path, policy, added):
    folder = Folder(tmp_path, policy)

    there = folder.run("grpo", *VLLM, added=added, reward=SCORED)
    here = folder.run(
        "grpo", *VLLM, "train.folder=here", "cluster.executor=local", added=added, reward=SCORED
    )

    assert max(record["policy/logprob_gap_max"] for record in there) < 1e-3
    for record, expected in zip(there, here, strict=True):
        assert known(record) == pytest.approx(known(expected), rel=1e-3, abs=1e-4)
