"""Who leaves a GPU gives its memory back, and the numbers stay the same."""

import gc

import pytest
import torch
from torch.distributed import FileStore
from torch.testing import assert_close

from flowrl.ir.plan import Pool
from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks, join
from flowrl.runtime.residency import Room
from flowrl.runtime.training.schedule import TrainerOptions
from tests.ranked import as_ranks
from tests.runtime.engines.losses import PLAIN, losses

GPUS = torch.cuda.device_count()
AWAY = {"policy.generate": "drop", "policy.train": "offload", "reference": "offload"}
GREEDY = ([Request([5, 9, 3], 3)], Sampling(temperature=0.0, max_tokens=6))

pytestmark = pytest.mark.skipif(not GPUS, reason="needs a GPU")


def in_use():
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def updated(spec, batch):
    """Return a trainer after an update."""
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN))
    loss, outputs = losses(batch)["token mean"]
    trainer.update(batch, outputs, 1.0, loss, 0)
    return trainer


def idle(spec, batch):
    """Return the memory in use without models: libraries have taken their own by then."""
    updated(spec, batch)
    gc.collect()
    return in_use()


def steps(spec, batch, tokenizer, residencies):
    """Return samples, scores and weights after three steps, and the memory of who is there."""
    room, used = Room(Pool("all", 1, residencies=residencies)), {}
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN))
    reference, generator = TorchScorer(spec), HFGenerator(spec, tokenizer)
    for engine, role, use in (
        (trainer, "policy", "train"),
        (reference, "reference", "score"),
        (generator, "policy", "generate"),
    ):
        room.admit(engine, role, use)
    loss, outputs = losses(batch)["token mean"]
    samples, scores = [], []

    def given(engine):
        if room.turns(engine):
            room.take(engine)

    for step in range(3):
        given(generator)
        generator.load(trainer.weights(), step)
        used["generate"] = in_use()
        samples.append(generator.generate(*GREEDY))
        given(reference)
        used["score"] = in_use()
        scores.append(reference.forward(batch, ["logprobs"], 1.0)["logprobs"])
        given(trainer)
        used["train"] = in_use()
        trainer.update(batch, outputs, 1.0, loss, step)
    return samples, scores, trainer.state_dict(), used


def test_seats_that_leave_a_gpu_give_its_memory_back_and_change_no_bit(
    model_folder, batch, tokenizer
):
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")

    start = idle(spec, batch)
    samples, *expected, stay = steps(spec, batch, tokenizer, {})
    gc.collect()
    found, *numbers, away = steps(spec, batch, tokenizer, AWAY)

    assert found == samples
    assert_close(numbers, expected, rtol=0, atol=1e-12)
    assert all(start < away[use] < stay[use] for use in ("generate", "score", "train"))


def test_a_trainer_that_sleeps_leaves_nothing_on_the_gpu(model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")
    before = idle(spec, batch)
    trainer = updated(spec, batch)
    state, size = trainer.state_dict(), in_use() - before

    trainer.sleep()

    assert in_use() - before < size / 4  # buffers, and counts of steps
    assert all(x.device.type == "cpu" and x.is_pinned() for x in trainer.stored().values())
    trainer.wake()
    assert in_use() - before == size
    assert_close(trainer.state_dict(), state, rtol=0, atol=0)


def ranked(index, count, spec, batch, file):
    """Update a divided trainer that sleeps between steps, beside one that doesn't."""
    torch.cuda.set_device(index)
    ranks = join(Ranks(index, count, 60), FileStore(file, count))
    loss, outputs = losses(batch)["token mean"]
    plain, other = (
        TorchTrainer(spec, TrainerOptions(**PLAIN), ranks=ranks, fsdp=Fsdp2()) for _ in range(2)
    )
    for step in range(3):
        full = in_use()
        other.sleep()
        assert in_use() < full
        assert all(not x.is_cuda for x in other.stored().values())
        assert_close(other.weights(), plain.weights(), rtol=0, atol=1e-12)
        other.wake()
        for each in (plain, other):
            each.update(batch, outputs, 1.0, loss, step)
    other.sleep()
    assert_close(other.state_dict(), plain.state_dict(), rtol=0, atol=1e-12)


@pytest.mark.skipif(GPUS < 2, reason="needs 2 GPUs")
def test_divided_weights_leave_gpus_and_come_back(model_folder, batch, tmp_path):
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")

    as_ranks(2, ranked, 2, spec, batch, str(tmp_path / "store"))
