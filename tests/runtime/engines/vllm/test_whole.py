"""Samples that are held back until they are finished are those that vLLM makes by itself."""

from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.model.models import ModelSpec
from tests.train.conftest import make_model, make_tokenizer  # noqa: F401

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
MANY = [Request([1, 5, 9 + i], seed=100 * i, n=n) for i, n in enumerate((1, 2, 5, 0, 3))]


@pytest.fixture(scope="module")
def spec(make_model):  # noqa: F811
    return ModelSpec(str(make_model(make_tokenizer(), hidden_size=64)))


@pytest.fixture(scope="module")
def generator(spec):
    return VLLMGenerator(spec, make_tokenizer(), kv_cache_gib=0.1)


def scheduler_of(generator):
    return generator.llm.llm_engine.engine_core.engine_core.scheduler


def spied(monkeypatch, owner, name):
    """Have calls of a method noted; return the list of what it was given first."""
    given, calls = getattr(owner, name), []

    def noted(first, *rest, **named):
        calls.append(first)
        return given(first, *rest, **named)

    monkeypatch.setattr(owner, name, noted)
    return calls


def as_vllm_gives_them(generator, monkeypatch, *asked):
    """Return samples that go through vLLM's own reader token by token."""
    with monkeypatch.context() as patch:
        own = generator.whole.update_from_output
        patch.setattr(scheduler_of(generator), "update_from_output", own)
        return generator.generate(*asked)


def scheduled(ahead, monkeypatch):
    """Have vLLM schedule a step while the one before it runs, as on GPUs, or when it has ended."""
    platform = import_module("vllm.platforms").current_platform
    given = platform.check_and_update_config

    def chosen(config):
        given(config)
        config.scheduler_config.async_scheduling = ahead

    monkeypatch.setattr(type(platform), "check_and_update_config", staticmethod(chosen))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=20),
        Sampling(max_tokens=1),
        Sampling(0.0, max_tokens=12),
        Sampling(max_tokens=30, stop_tokens=tuple(range(3, 10))),
        Sampling(max_tokens=30, min_tokens=6, stop_tokens=tuple(range(3, 20))),
    ],
)
def test_they_are_the_same(generator, monkeypatch, sampling):
    expected = as_vllm_gives_them(generator, monkeypatch, MANY, sampling)

    found = generator.generate(MANY, sampling)

    assert [len(group) for group in found] == [1, 2, 5, 0, 3]
    assert found == expected


def test_vllm_reads_each_sample_once(generator, monkeypatch):
    read = spied(monkeypatch, generator.llm.llm_engine.output_processor, "process_outputs")

    generator.generate(MANY, Sampling(max_tokens=9))

    assert sum(map(len, read)) == 11
    assert generator.whole.growing == {}


def test_with_stop_strings_it_reads_each_token(generator, monkeypatch):
    read = spied(monkeypatch, generator.llm.llm_engine.output_processor, "process_outputs")

    found = generator.generate(MANY, Sampling(max_tokens=9, stop=("nowhere",)))

    assert sum(map(len, read)) == sum(len(one.tokens) for group in found for one in group)


@pytest.mark.parametrize("ahead", [False, True])
def test_one_that_is_put_off_and_begun_again_is_whole(spec, generator, monkeypatch, ahead):
    scheduled(ahead, monkeypatch)
    scarce = VLLMGenerator(spec, make_tokenizer(), kv_cache_gib=0.002, max_model_len=500)
    put_off = spied(monkeypatch, scheduler_of(scarce), "_preempt_request")
    many, sampling = [Request([1, 5, 9], seed=0, n=16)], Sampling(max_tokens=300, min_tokens=290)

    (found,) = scarce.generate(many, sampling)
    (expected,) = generator.generate(many, sampling)

    assert scarce.llm.llm_engine.vllm_config.scheduler_config.async_scheduling is ahead
    assert put_off
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs))
