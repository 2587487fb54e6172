"""Runs that sample with vLLM: they learn, and stop at the first step of an engine gone wrong."""

from importlib import import_module

import pytest

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.adapter import Adapters
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.engines.vllm.process import quiet
from flowrl.runtime.engines.vllm.transfer import RECEIVER
from tests.train.conftest import SCORED, Folder, make_model, make_tokenizer  # noqa: F401

from .conftest import MISSING

pytestmark = MISSING

ENGINE = """
[engines.policy.generate]
engine = "vllm"
max_tokens = 6
vllm = { kv_cache_gib = 0.1 }
"""
LIMIT = "train.max_logprob_mismatch=0.01"
ADAPTER = ("models.policy.lora.rank=4", "optimizer.learning_rate=0.03", LIMIT)


@pytest.fixture(scope="module")
def policy(make_model):  # noqa: F811
    """Return the folder of a model whose heads are wide enough for vLLM, its head tied."""
    return make_model(make_tokenizer(), hidden_size=64, tie_word_embeddings=True)


@pytest.fixture
def folder(tmp_path, policy):
    """Return a run's folder with prompts of more than one block of the cache."""
    made = Folder(tmp_path, policy)
    made.write_rows("train.jsonl", [{"prompt": f"{c * 140}:", "answer": c} for c in "abcdefgh"])
    return made


def run(folder, *sets):
    parts = {"hyperparameters": "samples = 8\nkl_coef = 0", "models": ""}
    folder.write("grpo", reward=SCORED, **parts)
    path = folder.path / "run.toml"
    path.write_text(path.read_text().replace("[engines.policy.generate]\nmax_tokens = 6\n", ENGINE))
    return folder.rerun(*sets)


def test_a_run_learns(folder):
    records = run(
        folder, "train.steps=40", "train.prompts_per_step=8", "optimizer.learning_rate=0.003", LIMIT
    )

    rewards = [record["reward"] for record in records]
    assert sum(rewards[-5:]) > 2 * sum(rewards[:5])
    assert max(record["policy/logprob_gap_max"] for record in records) < 1e-3


def corrupted(monkeypatch):
    load = VLLMGenerator.load
    monkeypatch.setattr(
        VLLMGenerator,
        "load",
        lambda self, weights, version: load(
            self, {**weights, "model.norm.weight": weights["model.norm.weight"] * 1.1}, version
        ),
    )


def stale_cache(monkeypatch):
    monkeypatch.setattr(
        VLLMGenerator, "loads", property(lambda _: 0, lambda *_: None), raising=False
    )


def stale_tied_head(monkeypatch):
    with quiet():
        import_module(RECEIVER)
    monkeypatch.setattr(f"{RECEIVER}.repack_tied", lambda model: None)


@pytest.mark.parametrize(
    ("fault", "step"), [(corrupted, 1), (stale_cache, 3), (stale_tied_head, 2)]
)
def test_a_fault_stops_the_run_at_the_first_samples_it_is_in(folder, monkeypatch, fault, step):
    fault(monkeypatch)

    with pytest.raises(EngineError, match=rf"policy/logprob_gap_max is .* at step {step}; at most"):
        run(folder, "optimizer.learning_rate=0.01", LIMIT, "cluster.check_weights_every=0")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (corrupted, r"`model.norm.weight` differs in 64 of 64 elements"),
        (stale_cache, r"its cache still has version 0"),
    ],
)
def test_a_fault_is_told_before_what_was_sampled_is_trained_on(folder, monkeypatch, fault, told):
    fault(monkeypatch)

    with pytest.raises(EngineError, match=told):
        run(folder, "optimizer.learning_rate=0.01", "cluster.check_weights_every=1")


def test_a_run_samples_with_the_adapter_that_it_trains(folder):
    records = run(folder, "train.steps=6", *ADAPTER)

    assert max(record["policy/logprob_gap_max"] for record in records) < 1e-3


def missing_adapter(monkeypatch):
    monkeypatch.setattr(Adapters, "load", lambda self, weights: None)


def unasked_adapter(monkeypatch):
    monkeypatch.setattr(Adapters, "ready", lambda self: None)


def old_adapter(monkeypatch):
    load = Adapters.load
    monkeypatch.setattr(Adapters, "load", lambda self, x: None if self.now else load(self, x))


@pytest.mark.parametrize("fault", [missing_adapter, old_adapter])
def test_an_adapter_that_is_not_sampled_with_stops_the_run_once_it_matters(
    folder, monkeypatch, fault
):
    fault(monkeypatch)

    with pytest.raises(EngineError, match=r"policy/logprob_gap_max is .* at step 2; at most"):
        run(folder, *ADAPTER, "cluster.check_weights_every=0")


@pytest.mark.parametrize(
    ("fault", "steps", "told"),
    [
        (missing_adapter, 0, r"vLLM has no adapter on"),
        (unasked_adapter, 0, r"vLLM was not asked for `adapter 1` on .* sampled from the base"),
        (old_adapter, 1, r"q_proj.lora_B.default.weight` differs in 256 of 256 elements, as do 13"),
    ],
)
def test_a_fault_of_an_adapter_is_told_before_what_was_sampled_is_trained_on(
    folder, monkeypatch, fault, steps, told
):
    fault(monkeypatch)

    with pytest.raises(EngineError, match=told):
        run(folder, *ADAPTER, "cluster.check_weights_every=1")
    assert len(folder.records()) == steps
