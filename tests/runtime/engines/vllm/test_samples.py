"""Samples are read as lists of numbers; what they are, tests/conformance says."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.model.models import ModelSpec
from tests.train.conftest import make_model, make_tokenizer  # noqa: F401

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


def test_no_object_is_made_for_a_token(make_model, monkeypatch):  # noqa: F811
    folder = str(make_model(make_tokenizer(), hidden_size=64))
    generator, made = VLLMGenerator(ModelSpec(folder), make_tokenizer(), kv_cache_gib=0.1), []
    monkeypatch.setattr(
        import_module("vllm.logprobs"), "Logprob", lambda **given: made.append(given)
    )

    ((one, other),) = generator.generate([Request([1, 5], seed=0, n=2)], Sampling(max_tokens=8))

    assert len(one.tokens) == len(one.logprobs) > 1
    assert one.tokens != other.tokens
    assert made == []
