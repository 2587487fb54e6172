"""Engines of a pool take turns on a device."""

import pytest
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.ir.plan import Pool
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.residency import Room
from tests.runtime.steps import FixedTokens

OFFLOAD = Pool("all", residencies={"policy": "offload"})


@pytest.fixture
def spec(model_folder):
    return ModelSpec(model_folder("llama"))


def test_an_engine_leaves_as_it_is_loaded_and_shares_no_tensors(spec, tokenizer):
    trainer, room = TorchTrainer(spec), Room(OFFLOAD)

    room.admit(trainer, "policy", "train")

    assert all(p.untyped_storage().nbytes() == 0 for p in trainer.model.parameters())
    with pytest.raises(EngineError, match="leaves its device while others work"):
        trainer.share(HFGenerator(spec, tokenizer).lent())


def test_where_nothing_is_said_nobody_leaves_and_nothing_is_done(spec, tokenizer):
    trainer, generator, room = TorchTrainer(spec), HFGenerator(spec, tokenizer), Room()

    for engine, use in ((trainer, "train"), (generator, "generate")):
        room.admit(engine, "policy", use)
        assert not room.turns(engine)

    assert not room.done


def test_an_engine_that_can_not_leave_is_told():
    with pytest.raises(EngineError) as error:
        Room(OFFLOAD).admit(FixedTokens(), "policy", "generate")

    assert str(error.value) == snapshot("""\
`policy.generate` is to be `offload` while others work; its engine, FixedTokens, has no `sleep`
help: let it be `resident`, or give the engine `sleep` and `wake`\
""")
