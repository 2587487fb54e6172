"""What waits in host memory does so on GPUs, and the numbers are the same."""

from pathlib import Path

import pytest
import torch
from torch.distributed import FileStore
from torch.testing import assert_close

from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks, join
from flowrl.runtime.training.schedule import TrainerOptions
from tests.ranked import as_ranks
from tests.runtime.engines.losses import PLAIN, losses

GPUS = torch.cuda.device_count()


def updated(spec, batch, *, options=None, **how):
    """Return a trainer after two updates, a state that it returned to, and one more."""
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN | (options or {})), **how)
    loss, outputs = losses(batch)["token mean"]
    for step in range(2):
        trainer.update(batch, outputs, 1.0, loss, step)
    trainer.load_state_dict(trainer.state_dict())
    trainer.update(batch, outputs, 1.0, loss, 2)
    return trainer


@pytest.mark.skipif(not GPUS, reason="needs a GPU")
def test_moments_are_on_the_gpu_for_steps_alone(model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")

    plain = updated(spec, batch)
    other = updated(spec, batch, options={"offload_optimizer": True})

    assert_close(other.state_dict(), plain.state_dict(), rtol=0, atol=1e-12)
    moments = [x for of in other.optimizer.state.values() for x in of.values() if x.dim()]
    assert all(x.device.type == "cpu" and x.is_pinned() for x in moments)
    assert all(weight.is_cuda for weight in other.stored().values())


@pytest.mark.skipif(not GPUS, reason="needs a GPU")
def test_what_checkpointed_layers_keep_comes_back_from_the_host(model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")

    other = updated(spec, batch, options={"checkpointing": True, "offload_activations": True})

    assert_close(other.state_dict(), updated(spec, batch).state_dict(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("count", "fsdp", "options"),
    [
        (2, Fsdp2(offload=True), {}),
        (2, Fsdp2(), {"offload_optimizer": True}),
        (4, Fsdp2(replicas=2), {"checkpointing": True, "offload_activations": True}),
        (4, Fsdp2(replicas=2, offload=True), {}),
    ],
)
def test_gpus_that_divide_weights_train_as_one_does(
    count, fsdp, options, model_folder, batch, tmp_path
):
    if count > GPUS:
        pytest.skip(f"needs {count} GPUs")
    spec = ModelSpec(model_folder("llama"), dtype="float64", device="cuda")

    as_ranks(count, on_gpu, count, spec, batch, fsdp, options, tmp_path)

    found = torch.load(tmp_path / "state.pt")
    assert_close(found, updated(spec, batch).state_dict(), rtol=0, atol=1e-10)


def on_gpu(index: int, count: int, spec, batch, fsdp, options, folder: Path) -> None:
    """Be one rank: train, save and load, tell the state."""
    if spec.device == "cuda":
        torch.cuda.set_device(index)
    ranks = join(Ranks(index, count, 120), FileStore(str(folder / "store"), count))
    trainer = updated(spec, batch, options=options, ranks=ranks, fsdp=fsdp)
    home = "cpu" if fsdp.offload else spec.device
    assert {weight.device.type for weight in trainer.stored().values()} == {home}
    trainer.save_sharded(str(folder / "shards"))
    trainer.load_sharded(str(folder / "shards"))
    trainer.snapshot().average(trainer.weights(), 0.5)
    state = trainer.state_dict()
    if index == 0:
        torch.save(state, folder / "state.pt")
