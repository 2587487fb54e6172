"""Every engine that samples is held to the same sentences."""

import re

import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.hf import HFGenerator

from .conftest import BOS, DEVICE, EOS

EXACT = 1e-4 if DEVICE == "cpu" else 5e-4
"""Of float32 logprobs, against float64; vLLM's kernels for GPUs round float32 products."""
TWENTY = Sampling(max_tokens=20)
MANY = [Request([BOS, 70], seed=0, n=64)]


def flat(completions):
    return [one for group in completions for one in group]


def tokens(completions):
    return [one.tokens for one in flat(completions)]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logprobs_are_the_models(generator, reference, requests, temperature):
    found = generator.generate(requests, Sampling(temperature, max_tokens=20))

    assert [len(group) for group in found] == [3, 1, 2, 1]
    assert all(len(one.tokens) == len(one.logprobs) for one in flat(found))
    assert reference.gap(requests, found, temperature) < EXACT


def test_logprobs_are_of_the_filtered_distribution(generator, reference, requests):
    found = generator.generate(requests, Sampling(0.8, top_k=5, top_p=0.7, max_tokens=8))

    for request, group in zip(requests, found, strict=True):
        for one in group:
            logits = reference.logits(request.prompt, one.tokens) / 0.8
            for logit, token, logprob in zip(logits, one.tokens, one.logprobs, strict=True):
                p, kept = logit.softmax(-1).topk(5)
                p = p / p.sum()
                size = int((p.cumsum(-1) < 0.7).sum()) + 1
                place = kept.tolist().index(token)
                assert place < size
                assert logprob == pytest.approx((p[place] / p[:size].sum()).log().item(), abs=EXACT)


def test_a_sample_has_the_probability_that_its_logprob_says(generator, reference):
    found = flat(generator.generate([Request([BOS, 70], seed=0, n=4000)], Sampling(max_tokens=1)))

    expected = reference.logits([BOS, 70], [EOS]).softmax(-1)[0]
    share = torch.bincount(torch.tensor([one.tokens[0] for one in found]), minlength=259) / 4000
    assert_close(share.double(), expected, rtol=0, atol=0.03)


def test_greedy_is_the_argmax_with_logprob_0(generator, reference, requests):
    found = generator.generate(requests, Sampling(temperature=0, max_tokens=12))

    for request, group in zip(requests, found, strict=True):
        best = reference.logits(request.prompt, group[0].tokens).argmax(-1)
        assert best.tolist() == group[0].tokens
        assert group[0].logprobs == [0.0] * len(group[0].tokens)
        assert group == group[:1] * request.n


def test_a_seed_repeats_its_sample(generator, requests):
    found = generator.generate(requests, TWENTY)

    again = generator.generate(requests, TWENTY)
    turned = generator.generate(requests[::-1], TWENTY)[::-1]

    assert tokens(again) == tokens(found) == tokens(turned)
    assert len({tuple(row) for row in tokens(found)}) == 7


def test_sample_i_of_a_request_is_seeded_with_seed_plus_i(generator):
    together = generator.generate([Request([BOS, 70, 80], seed=2**40, n=4)], TWENTY)

    apart = [Request([BOS, 70, 80], seed=2**40 + i) for i in range(4)]
    assert tokens(generator.generate(apart, TWENTY)) == tokens(together)


def test_a_completion_ends_with_the_end_of_sequence_or_at_the_limit(generator):
    limit = Sampling(max_tokens=8, top_k=0, stop_tokens=tuple(range(100, 120)))

    found = flat(generator.generate(MANY, limit))

    ends = {EOS, *limit.stop_tokens}
    for one in found:
        assert one.truncated == (one.tokens[-1] not in ends)
        assert not ends & set(one.tokens[:-1])
        assert len(one.tokens) == 8 or not one.truncated
    assert 0 < sum(one.truncated for one in found) < len(found)
    assert any(len(one.tokens) == 8 and not one.truncated for one in found)


def test_stop_tokens_end_a_completion_and_stay_in_it(generator):
    free = flat(generator.generate(MANY, TWENTY))

    found = flat(generator.generate(MANY, Sampling(max_tokens=20, stop_tokens=(100, 200))))

    for one, other in zip(found, free, strict=True):
        hits = [t + 1 for t, token in enumerate(other.tokens) if token in (100, 200)]
        assert one.tokens == other.tokens[: min(hits, default=20)]
        assert one.truncated == (other.truncated and not hits)
    assert {100, 200} <= {one.tokens[-1] for one in found}


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_stop_strings_end_a_completion_with_the_token_that_completes_them(
    generator, tokenizer, min_tokens
):
    free = flat(generator.generate(MANY, Sampling(max_tokens=20, min_tokens=min_tokens)))
    pairs = re.findall("[ -~]{2}", " ".join(tokenizer.decode(one.tokens) for one in free))
    stop = (*pairs[:3], *"aeiou", "nowhere to be found")

    found = flat(
        generator.generate(MANY, Sampling(max_tokens=20, min_tokens=min_tokens, stop=stop))
    )

    assert any(len(one.tokens) < len(other.tokens) for one, other in zip(found, free, strict=True))
    for one, other in zip(found, free, strict=True):
        begun = [tokenizer.decode(other.tokens[: t + 1]) for t in range(len(other.tokens))]
        whole = [sum(text.count(s) for s in stop) for text in begun]
        hits = [
            t + 1
            for t, (now, before) in enumerate(zip(whole, [0, *whole], strict=False))
            if now > before and t + 1 >= min_tokens
        ]
        assert one.tokens == other.tokens[: min(hits, default=20)]
        assert one.truncated == (other.truncated and not hits)


def test_a_stop_string_that_ends_at_the_limit_is_a_stop(generator, tokenizer):
    stop = tuple(map(chr, range(ord(" "), ord("~") + 1)))

    found = flat(generator.generate(MANY, Sampling(max_tokens=6, min_tokens=6, stop=stop)))

    ended = [tokenizer.decode(one.tokens).endswith(stop) for one in found]
    assert [one.truncated for one in found] == [not end for end in ended]
    assert 0 < sum(ended) < len(found)


def test_stop_strings_are_found_in_characters_of_several_tokens(generator, tokenizer):
    prompt = [BOS, *tokenizer.encode("né à 5 € ☃", add_special_tokens=False)]
    requests = [Request(prompt, seed=0, n=256)]
    free = flat(generator.generate(requests, Sampling(max_tokens=30)))
    texts = [tokenizer.decode(one.tokens) for one in free]
    written = {c for text in texts for c in text if len(c.encode()) > 1 and c != "\ufffd"}
    stop = tuple(sorted(written))[:5]

    found = flat(generator.generate(requests, Sampling(max_tokens=30, stop=stop)))

    cut = [one for one in found if tokenizer.decode(one.tokens).endswith(stop)]
    assert len(cut) == sum(any(c in text for c in stop) for text in texts) > 0
    assert not any(one.truncated for one in cut)


def test_stop_strings_are_not_looked_for_in_a_prompt_that_ends_within_a_character(
    generator, tokenizer
):
    prompt = [BOS, *tokenizer.encode("stop? é", add_special_tokens=False)[:-1]]
    requests = [Request(prompt, seed=0, n=32)]
    free = flat(generator.generate(requests, Sampling(max_tokens=4)))

    found = flat(generator.generate(requests, Sampling(max_tokens=4, stop=("stop", "p?"))))

    assert found == free


def test_min_tokens_forbids_any_end_before(generator):
    ends = tuple(range(3, 100))

    early = flat(generator.generate(MANY, Sampling(max_tokens=10, stop_tokens=ends)))
    found = flat(generator.generate(MANY, Sampling(max_tokens=10, min_tokens=6, stop_tokens=ends)))

    assert any(len(one.tokens) < 6 for one in early)
    assert all(len(one.tokens) >= 6 for one in found)
    assert not any(token in (EOS, *ends) for one in found for token in one.tokens[:5])
    assert any(len(one.tokens) < 10 for one in found)


def test_prompts_that_the_model_cannot_read_are_named(generator):
    good = Request([BOS, 5], seed=0)
    found = []
    for prompt in ([], [1] * 493, [1, 259]):
        with pytest.raises(EngineError) as error:
            generator.generate([good, Request(prompt, seed=0)], TWENTY)
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
prompt 1 of the block is empty
help: begin prompts with a token, such as BOS\
""",
            """\
prompt 1 of the block has 493 tokens; the model's 512 positions leave 492 beside max_tokens = 20
help: drop long prompts or lower max_tokens\
""",
            """\
prompt 1 of the block has token ids from 1 to 259; the model knows 0 to 258
help: use the tokenizer that belongs to the model\
""",
        ]
    )


def test_the_longest_prompt_is_read(generator, reference):
    requests = [Request([BOS] * 492, seed=0, n=2)]

    found = generator.generate(requests, TWENTY)

    assert reference.gap(requests, found) < EXACT


def test_settings_that_describe_no_distribution_are_named(generator):
    for sampling in (
        Sampling(top_p=0.0),
        Sampling(max_tokens=2, min_tokens=3),
        Sampling(min_tokens=3, stop_tokens=(-1,)),
    ):
        with pytest.raises(EngineError, match=r"`(top_p|min_tokens|stop_tokens)` must be"):
            generator.generate(MANY, sampling)


def test_no_requests_give_no_completions(generator):
    some = [Request([BOS], seed=0, n=0), Request([BOS], seed=0, n=1), Request([BOS], seed=0, n=0)]

    assert generator.generate([], TWENTY) == []
    assert [len(group) for group in generator.generate(some, TWENTY)] == [0, 1, 0]


def test_new_weights_are_sampled_from_whatever_was_cached(generator, reference, requests):
    old = generator.generate(requests, TWENTY)

    for version in (1, 2):
        generator.load(reference.change(seed=version), version)
        new = generator.generate(requests, TWENTY)

        assert generator.version == version
        assert tokens(new) != tokens(old)
        assert reference.gap(requests, new) < EXACT
        assert reference.gap(requests, old) > 100 * EXACT


def test_what_it_holds_is_what_it_was_given_and_its_cache_is_of_another_version(
    generator, reference
):
    before, weights = generator.cache_version, reference.change(seed=5)

    generator.load(weights, version=1)

    held = generator.held()
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= set(held) <= set(weights)
    assert all(torch.equal(own, weights[name].to(own)) for name, own in held.items())
    assert generator.cache_version is None or generator.cache_version > before


def test_weights_written_in_place_are_sampled_from(generator, reference, requests):
    generator.generate(requests, TWENTY)
    stored, weights = generator.stored(), reference.change(seed=6)
    assert {n: x.shape for n, x in stored.items()} == {n: x.shape for n, x in weights.items()}

    with torch.no_grad():
        for name, own in stored.items():
            own.copy_(weights[name])
    generator.renewed(version=5)

    assert generator.version == 5
    assert reference.gap(requests, generator.generate(requests, TWENTY)) < EXACT


def test_what_slept_goes_on_where_it_was(generator, reference, requests):
    generator.load(reference.change(seed=7), version=3)
    before = generator.generate(requests, TWENTY)
    if not getattr(generator, "may_sleep", True):
        with pytest.raises(EngineError, match="vLLM lets only the first engine of a process sleep"):
            generator.sleep()
        return

    generator.sleep()
    generator.wake()

    assert tokens(generator.generate(requests, TWENTY)) == tokens(before)
    assert generator.version == 3


def test_old_weights_give_the_old_samples_again(generator, reference, requests):
    old, weights = generator.generate(requests, TWENTY), reference.original

    generator.load(reference.change(seed=3), version=1)
    generator.load({name: x.float() for name, x in weights.items()}, version=2)

    assert generator.generate(requests, TWENTY) == old


def test_tensors_that_do_not_fit_are_named(generator, reference):
    weights = {name: x.float() for name, x in reference.weights().items()}
    norm = weights.pop("model.norm.weight")
    found = []
    for wrong in (
        weights,
        weights | {"model.norm.weight": norm, "score.weight": norm},
        weights | {"model.norm.weight": norm[:3]},
    ):
        with pytest.raises(EngineError) as error:
            generator.load(wrong, version=1)
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
LlamaForCausalLM was not given its tensor `model.norm.weight`
help: load weights of the same model\
""",
            """\
LlamaForCausalLM has no tensor `score.weight`
help: load weights of the same model\
""",
            """\
`model.norm.weight` must be of shape [64]; got [3]
help: load weights of the same model\
""",
        ]
    )


def test_a_value_head_is_left_out(generator, reference, requests):
    weights = reference.change(seed=4)

    generator.load(weights | {"value_head.weight": torch.zeros(1, 64)}, version=1)

    assert reference.gap(requests, generator.generate(requests, TWENTY)) < EXACT


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_broke_is_told_of_and_not_sampled_from(generator, reference, temperature):
    weights = reference.change(seed=5)
    weights["model.norm.weight"][0] = float("nan")
    generator.load(weights, version=7)

    with pytest.raises(EngineError, match=r"version 7 of .* gives logits that are not finite"):
        generator.generate(MANY, Sampling(temperature, max_tokens=3))


def test_a_model_that_broke_is_sampled_from_again_once_it_is_whole(generator, reference, requests):
    weights = {name: x.float() for name, x in reference.weights().items()}
    values = "model.layers.0.self_attn.v_proj.weight"
    generator.load(weights | {values: weights[values] * torch.nan}, version=1)
    with pytest.raises(EngineError, match="not finite"):
        generator.generate(MANY, TWENTY)

    generator.load(weights, version=2)

    assert reference.gap(requests, generator.generate(requests, TWENTY)) < EXACT


def test_what_is_written_into_lent_tensors_is_sampled_from(generator, reference, requests):
    if DEVICE == "cpu" and not isinstance(generator, HFGenerator):
        with pytest.raises(EngineError, match=r"^vLLM has `model.*, torch.float32 .*, as "):
            generator.lent()
        return
    generator.generate(requests, TWENTY)
    lent, weights = generator.lent(), reference.change(seed=8)

    with torch.no_grad():
        for name, own in lent.items():
            own.copy_(weights[name])
    generator.renewed(version=6)

    assert lent.keys() == weights.keys()
    stored = generator.stored()
    assert all(stored[name].data_ptr() == own.data_ptr() for name, own in lent.items())
    assert reference.gap(requests, generator.generate(requests, TWENTY)) < EXACT
