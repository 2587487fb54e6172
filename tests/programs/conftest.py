"""Tiny models, a tokenizer, and runs of programs in double precision."""

import pytest
import torch

import flowrl as fl
from flowrl.runtime.engines.torch import TorchTrainer
from tests.programs import plain
from tests.programs.against import OPTIONS, Record
from tests.runtime import steps
from tests.runtime.conftest import model_folder, tokenizer

__all__ = ["model_folder", "tokenizer"]


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def ran(float64, model_folder, tokenizer, monkeypatch):
    """Return a function that takes two steps of a program: its record, metrics and last weights."""

    def run(program, sampling=None, /, **hyperparameters):
        record, update = Record(), TorchTrainer.update

        def spy(self, batch, *rest):
            rows = zip(batch.context.rows(), batch.tokens.rows(), strict=True)
            record.updates.append((self.role, [(c.tolist(), t.tolist(), None) for c, t in rows]))
            return update(self, batch, *rest)

        monkeypatch.setattr(TorchTrainer, "update", spy)
        traced = fl.trace(program, sampling, **hyperparameters)
        roles = steps.roles(traced, model_folder, dtype="float64", options=OPTIONS)
        made = steps.executor(traced, roles, tokenizer, generator=record, score=record.score)
        carry, metrics = steps.run(made, steps.cursors(traced, tokenizer), steps=2)
        return record, metrics, steps.weights(carry)

    return run


@pytest.fixture
def policy(float64, model_folder):
    return plain.language_model(model_folder("llama"))


@pytest.fixture
def reference(float64, model_folder):
    return plain.language_model(model_folder("qwen2"))
