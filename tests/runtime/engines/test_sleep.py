"""Engines leave their device and come back, with what they had."""

import pytest
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.training.schedule import TrainerOptions
from tests.runtime.engines.losses import PLAIN, losses

TWO = ([Request([5, 9], 3, 2)], Sampling(max_tokens=6))


def in_use(engine):
    """Return the bytes of an engine's parameters and moments."""
    tensors = [*engine.model.parameters()]
    for state in engine.optimizer.state.values() if hasattr(engine, "optimizer") else ():
        tensors += [x for x in state.values() if x.dim()]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


@pytest.fixture(params=["whole", "lora"])
def spec(request, model_folder):
    lora = Lora(rank=2, alpha=4.0) if request.param == "lora" else None
    return ModelSpec(model_folder("llama"), dtype="float64", lora=lora)


@pytest.fixture
def trainer(spec, batch):
    """Return a trainer after an update."""
    made = TorchTrainer(spec, TrainerOptions(**PLAIN))
    loss, outputs = losses(batch)["token mean"]
    made.update(batch, outputs, 1.0, loss, 0)
    return made


def test_a_trainer_that_slept_goes_on_bit_for_bit_and_uses_nothing_meanwhile(spec, trainer, batch):
    loss, outputs = losses(batch)["token mean"]
    other = TorchTrainer(spec, TrainerOptions(**PLAIN))
    other.load_state_dict(trainer.state_dict())
    size = in_use(trainer)

    for step in range(1, 4):
        trainer.sleep()
        assert in_use(trainer) == 0
        trainer.wake()
        assert in_use(trainer) == size
        for each in (trainer, other):
            each.update(batch, outputs, 1.0, loss, step)

    assert_close(trainer.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_trainer_that_sleeps_gives_its_weights_and_state_and_goes_on_sleeping(trainer, tmp_path):
    before = trainer.state_dict()
    trainer.save(str(tmp_path / "before"))

    trainer.sleep()
    trainer.save(str(tmp_path / "after"))

    assert_close(dict(trainer.weights()), before["weights"], rtol=0, atol=0)
    assert_close(trainer.stored(), before["weights"], rtol=0, atol=0)
    assert_close(trainer.state_dict(), before, rtol=0, atol=0)
    assert in_use(trainer) == 0
    saved = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("before", "after")]
    assert saved[0] == saved[1]


def test_a_trainer_that_sleeps_is_averaged_copied_and_returns_to_a_state(trainer, batch):
    state = trainer.state_dict()
    expected = trainer.snapshot()
    expected.average({name: 0 * x for name, x in state["weights"].items()}, 0.5)

    trainer.sleep()
    copy = trainer.snapshot()
    trainer.average({name: 0 * x for name, x in state["weights"].items()}, 0.5)

    assert in_use(trainer) == 0
    assert_close(trainer.weights(), expected.weights(), rtol=0, atol=0)
    trainer.load_state_dict(state)
    assert in_use(trainer) == 0
    trainer.wake()
    assert_close(trainer.state_dict(), state, rtol=0, atol=0)
    outputs = copy.forward(batch, ["logprobs"], 1.0)
    assert_close(outputs, trainer.forward(batch, ["logprobs"], 1.0), rtol=0, atol=0)


def test_what_sleeps_is_not_run(trainer, batch, model_folder, tokenizer):
    generator = HFGenerator(ModelSpec(model_folder("llama")), tokenizer)
    trainer.sleep()
    generator.sleep()

    with pytest.raises(EngineError, match="sleeps"):
        trainer.forward(batch, ["logprobs"], 1.0)
    with pytest.raises(EngineError, match="sleeps"):
        generator.generate(*TWO)


@pytest.mark.parametrize("keep", [True, False])
def test_a_generator_that_sleeps_uses_nothing_and_leaves_the_trainers_weights(
    keep, trainer, tokenizer
):
    generator = HFGenerator(trainer.spec, tokenizer)
    generator.load(trainer.weights(), 1)
    expected, weights = generator.generate(*TWO), trainer.state_dict()["weights"]

    generator.sleep(keep=keep)

    assert in_use(generator) == 0
    assert_close(dict(trainer.weights()), weights, rtol=0, atol=0)
    generator.wake()
    if not keep:
        for name, tensor in generator.stored().items():
            tensor.copy_(weights[name])
        generator.renewed(1)
    assert generator.generate(*TWO) == expected
