"""New weights reach vLLM whole or not at all; which they are, tests/conformance compares."""

from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.engines.vllm.process import quiet
from flowrl.runtime.engines.vllm.transfer import BUCKET, RECEIVER, buckets
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.model.weights import weights_of
from tests.train.conftest import make_model, make_tokenizer  # noqa: F401

here = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
GREEDY = Sampling(temperature=0, max_tokens=12)
ONE = [Request([1, 5, 9], seed=0)]


@pytest.fixture(scope="module")
def folder(make_model):  # noqa: F811
    """Return a model whose heads are wide enough for vLLM, its head tied."""
    return str(make_model(make_tokenizer(), hidden_size=64, tie_word_embeddings=True))


@pytest.fixture(scope="module")
def others(folder, tmp_path_factory):
    """Return other weights of the model, and the folder that has them."""
    torch.manual_seed(0)
    model, changed = load_model(ModelSpec(folder)), str(tmp_path_factory.mktemp("others"))
    for weight in weights_of(model).values():
        weight += 0.2 * torch.randn(weight.shape)
    model.save_pretrained(changed)
    return weights_of(model), changed


def start(folder):
    return VLLMGenerator(ModelSpec(folder), make_tokenizer(), kv_cache_gib=0.1)


@pytest.fixture
def generator(folder):
    return start(folder)


@given(st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_buckets_have_all_in_order_and_are_full_but_for_the_last(sizes, least):
    weights = [(str(i), torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)]

    made = list(buckets(iter(weights), least))

    assert [one for bucket in made for one in bucket] == weights
    for bucket in made[:-1]:
        assert sum(x.nbytes for _, x in bucket) >= least
    assert all(sum(x.nbytes for _, x in bucket[:-1]) < least for bucket in made)
    assert all(made)


def test_a_bucket_is_made_when_the_one_before_has_been_taken():
    made = []

    def weights():
        for i in range(6):
            made.append(i)
            yield str(i), torch.zeros(5, dtype=torch.uint8)

    seen = [len(made) for _ in buckets(weights(), least=10)]

    assert seen == [2, 4, 6]


@here
def test_weights_come_in_buckets_by_the_weight_transfer_api(generator, others, monkeypatch):
    weights, changed = others
    receiver, sizes = import_module(RECEIVER), []
    monkeypatch.setattr(receiver, "buckets", lambda weights: buckets(weights, 2**14))
    update = generator.llm.update_weights

    def counted(request):
        sizes.append(sum(x.nbytes for _, x in request["update_info"]["weights"]))
        update(request)

    monkeypatch.setattr(generator.llm, "update_weights", counted)
    generator.load(weights, version=1)

    assert len(sizes) > 3
    assert sum(sizes) == sum(x.nbytes for x in weights.values()) < BUCKET
    assert generator.generate(ONE, GREEDY) == start(changed).generate(ONE, GREEDY)


@here
def test_a_vllm_without_the_api_reloads_and_says_so(folder, others, monkeypatch, caplog):
    with quiet():
        transfer = import_module("vllm.distributed.weight_transfer")
    monkeypatch.delattr(transfer.WeightTransferEngine, "finish_weight_update")
    generator = start(folder)
    weights, changed = others

    generator.load(weights, version=1)

    assert "this vLLM doesn't take weights in buckets: it reloads all at once" in caplog.text
    assert generator.generate(ONE, GREEDY) == start(changed).generate(ONE, GREEDY)


@here
def test_weights_that_come_in_part_are_told_and_never_sampled_from(generator, others):
    def torn(weights):
        yield from list(weights.items())[:3]
        raise OSError("out of luck")

    found = []
    for wrong in (
        lambda: generator.transfer.take(torn(others[0])),
        lambda: generator.generate(ONE, GREEDY),
        lambda: generator.load(others[0], version=1),
    ):
        with pytest.raises(EngineError) as error:
            wrong()
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
vLLM failed while it loaded new weights: out of luck
help: start the run again; if it knows a weight by another name, take engine = "hf"\
""",
            """\
vLLM failed earlier while it loaded new weights
help: start the run again\
""",
            """\
vLLM failed earlier while it loaded new weights
help: start the run again\
""",
        ]
    )
    assert generator.version == 0


@here
def test_a_gpu_that_is_full_is_not_told_as_weights_that_are_wrong(generator):
    def full():
        raise torch.OutOfMemoryError("CUDA out of memory.")
        yield

    with pytest.raises(torch.OutOfMemoryError):
        generator.transfer.take(full())


@here
def test_weights_that_vllm_was_not_given_are_named(generator, others):
    weights = {name: x for name, x in others[0].items() if "0.mlp.down" not in name}

    with pytest.raises(EngineError) as error:
        generator.transfer.take(weights.items())

    assert str(error.value) == snapshot("""\
vLLM failed while it loaded new weights: vLLM was given nothing for ['model.layers.0.mlp.down_proj.weight']
help: start the run again; if it knows a weight by another name, take engine = "hf"\
""")
