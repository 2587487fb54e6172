import pytest
import torch
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Request, Sampling, Sequences
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec

ARCHITECTURES = ["llama", "qwen2", "gemma2", "granite", "gpt2"]
REQUESTS = [
    Request([1, 5, 9, 20, 33, 40, 12], seed=10, n=3),
    Request([1, 7], seed=2**40, n=1),
    Request([1, 30, 31, 32], seed=30, n=4),
]
TEN = Sampling(max_tokens=10)


@pytest.fixture
def generator(model_folder, tokenizer):
    """Return a generator of the tiny Llama in float64."""
    return HFGenerator(ModelSpec(model_folder("llama"), dtype="float64"), tokenizer)


def as_batch(requests, completions):
    """Return requests with their completions as a model reads them."""
    pairs = [
        (request.prompt, completion.tokens)
        for request, group in zip(requests, completions, strict=True)
        for completion in group
    ]
    contexts, tokens = zip(*pairs, strict=True)
    return Sequences(Ragged.of_rows(contexts, torch.int64), Ragged.of_rows(tokens, torch.int64))


def flat(completions):
    return [completion for group in completions for completion in group]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize(("dtype", "exact"), [("float64", 1e-10), ("float32", 1e-4)])
def test_sampled_logprobs_are_the_trainers(
    model_folder, tokenizer, architecture, temperature, dtype, exact
):
    spec = ModelSpec(model_folder(architecture), dtype=dtype)

    found = HFGenerator(spec, tokenizer).generate(REQUESTS, Sampling(temperature, max_tokens=20))

    got = TorchTrainer(spec).forward(as_batch(REQUESTS, found), ["logprobs"], temperature)
    sampled = torch.tensor([lp for one in flat(found) for lp in one.logprobs], dtype=torch.float64)
    assert len({len(one.tokens) for one in flat(found)}) > 1  # rows left the block early
    assert_close(got["logprobs"].double(), sampled, rtol=0, atol=exact)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_is_the_argmax_of_a_full_forward(model_folder, tokenizer, architecture):
    generator = HFGenerator(ModelSpec(model_folder(architecture), dtype="float64"), tokenizer)

    found = generator.generate(REQUESTS, Sampling(temperature=0, max_tokens=12))

    for request, group in zip(REQUESTS, found, strict=True):
        row = torch.tensor([list(request.prompt) + group[0].tokens])
        with torch.no_grad():
            logits = generator.model(row).logits[0, len(request.prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == group[0].tokens
        assert group[0].logprobs == [0.0] * len(group[0].tokens)
        assert all(one == group[0] for one in group)


def test_a_seed_repeats_its_sample_whatever_block_it_is_in(generator):
    found = generator.generate(REQUESTS, TEN)

    again = generator.generate(REQUESTS, TEN)
    alone = [generator.generate([request], TEN)[0] for request in REQUESTS]
    turned = generator.generate(REQUESTS[::-1], TEN)[::-1]
    third = generator.generate([Request(REQUESTS[0].prompt, seed=12)], TEN)[0][0]

    assert again == found
    for other in (alone, turned, [[*found[0][:2], third], *found[1:]]):
        assert [one.tokens for one in flat(other)] == [one.tokens for one in flat(found)]
        for a, b in zip(flat(other), flat(found), strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, rel=0, abs=1e-10)
    assert len({tuple(one.tokens) for one in flat(found)}) > 4


def test_a_completion_ends_with_the_end_of_sequence_or_at_the_limit(generator):
    found = flat(generator.generate([Request([1, 5], seed=0, n=64)], Sampling(max_tokens=8)))

    ended = [one for one in found if not one.truncated]
    assert {2} == {one.tokens[-1] for one in ended}
    assert all(2 not in one.tokens[:-1] for one in found)
    assert {8} == {len(one.tokens) for one in found if one.truncated}
    assert 0 < len(ended) < len(found)
    assert all(len(one.tokens) == len(one.logprobs) for one in found)


def test_stop_tokens_end_a_completion_and_stay_in_it(generator):
    free = flat(generator.generate([Request([1, 5], seed=0, n=32)], TEN))
    common = max(range(3, 64), key=lambda token: sum(token in one.tokens for one in free))

    found = flat(
        generator.generate(
            [Request([1, 5], seed=0, n=32)], Sampling(max_tokens=10, stop_tokens=(common,))
        )
    )

    for one, other in zip(found, free, strict=True):
        end = other.tokens.index(common) + 1 if common in other.tokens else len(other.tokens)
        assert one.tokens == other.tokens[:end]
        assert one.truncated == (other.truncated and common not in other.tokens)
    assert any(one.tokens[-1] == common for one in found)


def test_stop_strings_end_a_completion_with_the_token_that_completes_them(generator, tokenizer):
    requests = [Request([1, 5], seed=0, n=32)]
    free = flat(generator.generate(requests, TEN))
    texts = [tokenizer.decode(one.tokens) for one in free]
    stop = (texts[0][2:4], texts[1][3], "pad", "nowhere to be found")

    found = flat(generator.generate(requests, Sampling(max_tokens=10, stop=stop)))

    assert any(len(one.tokens) < len(other.tokens) for one, other in zip(found, free, strict=True))
    for one, other in zip(found, free, strict=True):
        begun = [tokenizer.decode(other.tokens[: t + 1]) for t in range(len(other.tokens))]
        hits = [t + 1 for t, text in enumerate(begun) if any(s in text for s in stop)]
        assert one.tokens == other.tokens[: min(hits, default=10)]
        assert one.truncated == (other.truncated and not hits)


def test_min_tokens_forbids_any_end_before(generator):
    requests = [Request([1, 5], seed=0, n=32)]
    early = Sampling(max_tokens=10, stop_tokens=tuple(range(20)), stop=("a", "b", "c"))

    free = flat(generator.generate(requests, early))
    found = flat(
        generator.generate(
            requests,
            Sampling(max_tokens=10, min_tokens=6, stop_tokens=early.stop_tokens, stop=early.stop),
        )
    )

    assert any(len(one.tokens) < 6 for one in free)
    assert all(len(one.tokens) >= 6 for one in found)
    assert not any(token < 20 for one in found for token in one.tokens[:5])
    assert any(len(one.tokens) < 10 for one in found)


def test_logprobs_are_of_the_filtered_distribution(generator):
    sampling = Sampling(temperature=0.8, top_k=5, top_p=0.7, max_tokens=6)

    found = generator.generate(REQUESTS, sampling)

    batch = as_batch(REQUESTS, found)
    for context, one in zip(batch.context.rows(), flat(found), strict=True):
        row = torch.cat([context, torch.tensor(one.tokens)])
        with torch.no_grad():
            logits = generator.model(row[None]).logits[0, len(context) - 1 : -1] / 0.8
        for logit, token, logprob in zip(logits, one.tokens, one.logprobs, strict=True):
            p, kept = logit.softmax(-1).topk(5)
            p = p / p.sum()
            size = int((p.cumsum(-1) < 0.7).sum()) + 1
            place = kept.tolist().index(token)
            assert place < size
            assert logprob == pytest.approx((p[place] / p[:size].sum()).log().item(), abs=1e-10)


def test_a_sample_has_the_probability_that_its_logprob_says(generator):
    found = flat(generator.generate([Request([1, 5], seed=0, n=4000)], Sampling(max_tokens=1)))

    with torch.no_grad():
        expected = generator.model(torch.tensor([[1, 5]])).logits[0, -1].softmax(-1)
    share = torch.bincount(torch.tensor([one.tokens[0] for one in found]), minlength=64) / 4000
    assert_close(share.double(), expected, rtol=0, atol=0.03)


def test_new_weights_are_shared_with_the_trainer(model_folder, tokenizer, generator):
    spec = ModelSpec(model_folder("llama"), dtype="float64")
    trainer = TorchTrainer(spec)
    old = generator.generate(REQUESTS, TEN)
    with torch.no_grad():
        for weight in trainer.weights().values():
            weight.mul_(1.1)

    generator.load(trainer.weights(), version=1)
    new = generator.generate(REQUESTS, TEN)

    ours = generator.model.state_dict()
    assert all(ours[name].data_ptr() == w.data_ptr() for name, w in trainer.weights().items())
    assert generator.version == 1
    assert new != old
    got = trainer.forward(as_batch(REQUESTS, new), ["logprobs"], 1.0)["logprobs"]
    sampled = torch.tensor([lp for one in flat(new) for lp in one.logprobs], dtype=torch.float64)
    assert_close(got, sampled, rtol=0, atol=1e-10)


def test_what_is_written_in_place_is_not_the_trainers(model_folder, tokenizer, generator):
    trainer = TorchTrainer(ModelSpec(model_folder("llama"), dtype="float64"))
    generator.load(trainer.weights(), version=1)
    before = {name: weight.clone() for name, weight in trainer.weights().items()}

    for weight in generator.stored().values():
        weight.zero_()
    generator.renewed(version=2)

    assert_close(trainer.weights(), before, rtol=0, atol=0)
    assert not any(weight.any() for weight in generator.model.parameters())
    assert generator.version == 2


def test_weights_of_another_dtype_are_copied(model_folder, tokenizer):
    trainer = TorchTrainer(ModelSpec(model_folder("llama"), dtype="bfloat16"))
    generator = HFGenerator(ModelSpec(model_folder("llama"), dtype="bfloat16"), tokenizer)

    generator.load(trainer.weights(), version=1)
    found = flat(generator.generate(REQUESTS, TEN))

    assert {tensor.dtype for tensor in generator.model.parameters()} == {torch.bfloat16}
    assert generator.model.lm_head.weight is generator.model.model.embed_tokens.weight
    assert all(len(one.tokens) for one in found)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_broke_is_told_of_and_not_sampled_from(generator, temperature):
    generator.model.model.norm.weight.data[0] = float("nan")

    with pytest.raises(EngineError, match=r"version 0 of .* gives logits that are not finite"):
        generator.generate(REQUESTS, Sampling(temperature, max_tokens=3))


def test_no_requests_give_no_completions(generator):
    assert generator.generate([], TEN) == []
    assert generator.generate([Request([1, 5], seed=0, n=0)], TEN) == [[]]
