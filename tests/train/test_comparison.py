"""Runs whose engine's weights are compared with those that train."""

import pytest
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.engines.hf import HFGenerator
from tests.train.test_cases import COPIED, FAST

LORA = """
[models.policy.lora]
rank = 4
"""


@pytest.fixture
def altered(monkeypatch):
    """Return a function by which a number of a tensor is altered before version 1 samples."""

    def altered(name):
        generate = HFGenerator.generate

        def after(self, requests, sampling):
            if self.version == 1:
                self.stored()[name].view(-1)[3] *= 1.01
            return generate(self, requests, sampling)

        monkeypatch.setattr(HFGenerator, "generate", after)

    return altered


def test_an_altered_weight_stops_the_run_and_is_named(folder, altered):
    altered("model.norm.weight")

    with pytest.raises(EngineError) as error:
        folder.run("grpo", FAST, COPIED, "cluster.check_weights_every=1")

    assert str(error.value).splitlines()[0] == snapshot(
        "generate: `policy` is not sampled from with the weights that train: `model.norm.weight` differs in 1 of 16 elements"
    )
    assert [record["step"] for record in folder.records()] == [1]


def test_an_altered_matrix_of_an_adapter_stops_the_run_and_is_named(folder, altered):
    name = "model.layers.1.mlp.up_proj.lora_B.default.weight"
    altered(name)

    with pytest.raises(EngineError) as error:
        folder.run("grpo", FAST, "cluster.check_weights_every=1", added=LORA)

    assert str(error.value).splitlines()[0] == snapshot(
        "generate: `policy` is not sampled from with the weights that train: `model.layers.1.mlp.up_proj.lora_B.default.weight` differs in 1 of 96 elements"
    )


def test_a_run_tells_what_it_compared(folder):
    records = folder.run("grpo", FAST, COPIED, "cluster.check_weights_every=2")

    figures = ("policy/weights_compared", "policy/weights_shared")
    assert [[record.get(name) for name in figures] for record in records] == snapshot(
        [[21.0, 0.0], [None, None], [21.0, 0.0]]
    )


def test_weights_that_are_shared_are_compared_as_one(folder):
    first, *_ = folder.run("grpo", FAST)

    assert first["policy/weights_shared"] == first["policy/weights_compared"] > 0
