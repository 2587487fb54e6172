"""A generator on several ranks samples what it does on one, and each rank has its part."""

import functools

import attrs
import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.agreement import RankMissingError
from flowrl.runtime.ranks.ranks import ALONE, among
from tests.runtime.families import FAMILIES, save
from tests.runtime.ray.ranked import here

REQUESTS = [
    Request([1, 5, 9, 20, 33, 40, 12], seed=10, n=3),
    Request([1, 7], seed=2**40, n=1),
    Request([1, 30, 31, 32], seed=30, n=4),
]
ENDS = {"stop": ("a", "bc", "Z", "+", "k"), "stop_tokens": (9, 20, 30, 40, 50)}
SAMPLINGS = [
    Sampling(0.8, max_tokens=12, min_tokens=3, **ENDS),
    Sampling(temperature=0, max_tokens=6),
    Sampling(0.7, top_k=20, top_p=0.8, max_tokens=8),
]
TEN = Sampling(max_tokens=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a function that gives the folder of a tiny model."""
    return functools.cache(lambda name: save(FAMILIES[name](), tmp_path_factory.mktemp(name)))


def sampled(spec, tokenizer, ranks=None):
    """Return the completions of all requests, for each sampling."""
    generator = HFGenerator(spec, tokenizer, ranks or here())
    return [generator.generate(REQUESTS, sampling) for sampling in SAMPLINGS]


def assert_same(found, expected, tolerance=1e-10):
    """Assert that all ranks have the tokens of one alone, and its logprobs; and the same bits."""
    assert all(each == found[0] for each in found)
    pairs = zip(flat(found[0]), flat(expected), strict=True)
    for a, b in pairs:
        assert (a.tokens, a.truncated) == (b.tokens, b.truncated)
        assert a.logprobs == pytest.approx(b.logprobs, rel=0, abs=tolerance)


def flat(made):
    return [one for groups in made for group in groups for one in group]


@pytest.mark.parametrize(
    ("count", "family"), [*((2, name) for name in FAMILIES), (4, "llama"), (4, "phi3")]
)
def test_ranks_sample_what_one_does(count, family, on, folder, tokenizer):
    spec = ModelSpec(folder(family), dtype="float64")

    found = on(count, sampled, spec, tokenizer)

    expected = sampled(spec, tokenizer, ALONE)
    assert_same(found, expected)
    lengths = {len(one.tokens) for one in flat(expected[:1])}
    assert len(lengths) > 1, "some rows end early"


def in_replica(spec, tokenizer):
    """Sample on one of two replicas."""
    first, second = (among(here(), range(i, i + 2)) for i in (0, 2))
    return sampled(spec, tokenizer, first or second)


def test_replicas_in_one_world_do_not_meet_nor_a_world_that_was_before(on, folder, tokenizer):
    spec = ModelSpec(folder("qwen2"), dtype="float64")
    before = on(2, sampled, spec, tokenizer)

    assert_same(on(4, in_replica, spec, tokenizer) + before, sampled(spec, tokenizer, ALONE))


def renewed(spec, tokenizer, changed, ranks=None):
    """Sample with changed weights, with its own again, and with changed ones written in place."""
    generator = HFGenerator(spec, tokenizer, ranks or here())
    own = {name: tensor.clone() for name, tensor in generator.stored().items()}
    made = []
    generator.load(changed, version=1)
    made.append(generator.generate(REQUESTS, TEN))
    parts = {name: tensor.clone() for name, tensor in generator.stored().items()}
    for version, weights in ((2, own), (3, parts)):
        for name, tensor in generator.stored().items():
            tensor.copy_(weights[name])
        generator.renewed(version)
        made.append(generator.generate(REQUESTS, TEN))
    return made, generator.version, sum(tensor.numel() for tensor in own.values())


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_weights_that_are_loaded_or_written_in_place_are_sampled_from(
    family, on, folder, tokenizer
):
    spec = ModelSpec(folder(family), dtype="float64")
    whole = HFGenerator(spec, tokenizer).stored()
    draw = torch.Generator().manual_seed(1)
    changed = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=draw, dtype=torch.float64)
        for name, tensor in whole.items()
    }

    found = on(4, renewed, spec, tokenizer, changed)

    made = [each for each, _, _ in found]
    assert_same(made, renewed(spec, tokenizer, changed, ALONE)[0])
    assert made[0][0] == made[0][2] != made[0][1]
    assert {version for _, version, _ in found} == {3}
    assert max(count for _, _, count in found) < 0.4 * sum(x.numel() for x in whole.values())


def in_bfloat16(spec, tokenizer):
    generator = HFGenerator(spec, tokenizer, here())
    made = generator.generate(REQUESTS, TEN)
    with torch.no_grad():
        logits = generator.model(torch.tensor([[1, 5, 9]])).logits
    return made, logits, {tensor.dtype for tensor in generator.stored().values()}


def test_bfloat16_has_the_same_bits_on_all_ranks(on, folder, tokenizer):
    spec = ModelSpec(folder("qwen3"), dtype="bfloat16")

    found = on(2, in_bfloat16, spec, tokenizer)

    (made, logits, dtypes), (other, others, _) = found
    assert dtypes == {torch.bfloat16}
    assert made == other
    assert torch.equal(logits, others)
    with torch.no_grad():
        alone = HFGenerator(spec, tokenizer).model(torch.tensor([[1, 5, 9]])).logits
    assert_close(logits, alone, rtol=0.1, atol=0.1)


def left_alone(spec, tokenizer):
    """Sample on the first rank, for which the second doesn't come."""
    ranks = among(attrs.evolve(here(), timeout=15), range(2))
    generator = HFGenerator(spec, tokenizer, ranks)
    if ranks.index == 1:
        return ""
    with pytest.raises(RankMissingError) as error:
        generator.generate(REQUESTS, TEN)
    return str(error.value).replace(spec.path, "FOLDER")


def test_a_rank_that_does_not_come_ends_in_an_error(on, folder, tokenizer):
    found, _ = on(2, left_alone, ModelSpec(folder("llama")), tokenizer)

    assert found == snapshot("""\
rank 0 of 2 waited at sampling 3 requests from FOLDER for the others, of which one ended or did not come within 15 s
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""")
