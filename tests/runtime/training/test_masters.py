"""Weights that a trainer shares with an engine are trained as its own would be."""

import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.training.schedule import TrainerOptions
from tests.runtime.engines.losses import PLAIN, losses

OPTIONS = PLAIN | {"tokens_per_microbatch": 12}


def pair(model_folder, tokenizer, dtype, head=None):
    """Return a trainer, and an engine with whose tensors it computes."""
    spec = ModelSpec(model_folder("llama"), head, dtype)
    trainer, generator = TorchTrainer(spec, TrainerOptions(**OPTIONS)), HFGenerator(spec, tokenizer)
    trainer.share(generator.lent())
    return trainer, generator


def update(trainer, batch, steps=2):
    loss, outputs = losses(batch)["token mean"]
    return [trainer.update(batch, outputs, 0.8, loss, step).stats for step in range(steps)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_an_update_is_in_the_engine_and_nothing_is_sent(dtype, model_folder, tokenizer, batch):
    trainer, generator = pair(model_folder, tokenizer, dtype)
    before = {name: tensor.clone() for name, tensor in generator.stored().items()}

    update(trainer, batch)

    for name, tensor in generator.model.named_parameters():
        own = trainer.model.get_parameter(name)
        assert own.data_ptr() == tensor.data_ptr()
        assert_close(trainer.own()[name].to(tensor.dtype), tensor, rtol=0, atol=0)
        assert not torch.equal(tensor, before[name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_weights_train_to_the_same_bits(dtype, model_folder, tokenizer, batch):
    spec = ModelSpec(model_folder("llama"), dtype=dtype)
    alone = TorchTrainer(spec, TrainerOptions(**OPTIONS))
    trainer, _ = pair(model_folder, tokenizer, dtype)

    assert update(trainer, batch) == update(alone, batch)

    assert_close(trainer.own(), alone.own(), rtol=0, atol=0)


def test_bfloat16_weights_are_trained_in_float32_over_all_microbatches(
    model_folder, tokenizer, batch
):
    trainer, generator = pair(model_folder, tokenizer, "bfloat16", "lm+value")
    wide = TorchTrainer(ModelSpec(model_folder("llama"), "lm+value"), TrainerOptions(**OPTIONS))
    start = {name: tensor.clone() for name, tensor in wide.own().items()}

    found, expected = update(trainer, batch), update(wide, batch)

    assert {tensor.dtype for tensor in trainer.own().values()} == {torch.float32}
    assert {tensor.dtype for tensor in generator.stored().values()} == {torch.bfloat16}
    assert [x["grad_norm"] for x in found] == pytest.approx(
        [x["grad_norm"] for x in expected], rel=0.05
    )
    moved = torch.cat([(trainer.own()[n] - start[n]).flatten() for n in start])
    ideal = torch.cat([(wide.own()[n] - start[n]).flatten() for n in start])
    assert (moved - ideal).norm() < 0.1 * ideal.norm()
    assert found[0]["microbatches"] > 1


def test_a_state_returns_and_is_written_through(model_folder, tokenizer, batch):
    trainer, generator = pair(model_folder, tokenizer, "bfloat16")
    update(trainer, batch)
    state, sampled = trainer.state_dict(), {n: t.clone() for n, t in generator.stored().items()}
    after = update(trainer, batch)

    trainer.load_state_dict(state)

    assert_close(generator.stored(), sampled, rtol=0, atol=0)
    assert_close(trainer.state_dict(), state, rtol=0, atol=0)
    assert update(trainer, batch) == after


def test_an_average_is_in_the_engine_and_stays_there(model_folder, tokenizer, batch):
    trainer, generator = pair(model_folder, tokenizer, "bfloat16")
    other = {name: tensor + 1 for name, tensor in trainer.own().items()}
    halfway = {name: tensor + 0.5 for name, tensor in trainer.own().items()}

    trainer.average(other, decay=0.5)

    assert_close(trainer.own(), halfway)
    assert_close(generator.stored(), {n: x.bfloat16() for n, x in trainer.own().items()})


def test_shards_of_shared_weights_are_refused(model_folder, tokenizer, tmp_path):
    trainer, _ = pair(model_folder, tokenizer, "bfloat16")

    with pytest.raises(EngineError) as raised:
        trainer.save_sharded(str(tmp_path / "state"))

    assert str(raised.value) == snapshot("""\
`model` computes with another engine's weights: its own are in no shards
help: take `state_dict`, which has them\
""")
    assert not (tmp_path / "state").exists()


def test_a_tensor_of_another_shape_is_refused_and_nothing_has_changed(
    model_folder, tokenizer, batch
):
    spec = ModelSpec(model_folder("llama"), dtype="bfloat16")
    trainer, generator = TorchTrainer(spec), HFGenerator(spec, tokenizer)
    lent = generator.lent() | {"model.norm.weight": torch.zeros(3, dtype=torch.bfloat16)}

    with pytest.raises(EngineError) as raised:
        trainer.share(lent)

    assert str(raised.value) == snapshot(
        "the tensor that `model.norm.weight` would share is of shape [3]; its own is of [16]"
    )
    assert trainer.masters is None
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}


def test_weights_that_were_updated_already_are_not_shared(model_folder, tokenizer, batch):
    spec = ModelSpec(model_folder("llama"))
    trainer = TorchTrainer(spec, TrainerOptions(**OPTIONS))
    update(trainer, batch, steps=1)

    with pytest.raises(EngineError, match="before its first update"):
        trainer.share(HFGenerator(spec, tokenizer).lent())
