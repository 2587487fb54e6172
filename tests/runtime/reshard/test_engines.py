"""Weights come from the chunks of FSDP2 straight into the tensors of those that sample."""

import pytest
import torch
import transformers

from flowrl.ir.layout import Layout
from tests.runtime.families import FAMILIES, save
from tests.runtime.reshard.carried import RANKS
from tests.runtime.reshard.synced import Sync, synced


@pytest.fixture
def folders(tmp_path):
    """Return a function that makes two models of a family."""

    def folders(family):
        trained = save(FAMILIES[family](), tmp_path / "trained")
        model = transformers.AutoModelForCausalLM.from_pretrained(trained)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(tmp_path / "old")
        return trained, str(tmp_path / "old")

    return folders


def test_a_generator_samples_from_what_was_brought_as_from_a_model_that_it_has_read(
    folders, tokenizer, on_ranks
):
    layouts = Layout.parse("fsdp4"), Layout.parse("tp2 x dp2")
    sync = Sync(*layouts, *folders("llama"), "bfloat16")

    found = on_ranks(synced, sync, tokenizer)

    assert sum(done.sent for done, _, _ in found) == sync.plan.bytes_moved
    sampling = [(before, after) for _, before, after in found if after]
    assert len(sampling) == sync.generator.size < RANKS
    for (old, trained), after in sampling:
        assert old != trained
        assert after == [trained, trained]
