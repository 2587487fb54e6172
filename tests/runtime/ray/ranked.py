"""What ranks are told to do in tests: to train, and to tell it in numbers."""

from unittest import mock

import attrs
import torch.distributed as dist
from torch.testing import assert_close

from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.ranks.ranks import ALONE, Ranks
from flowrl.runtime.training.schedule import TrainerOptions
from tests.runtime.engines.losses import PLAIN, TokenMean, losses

SMALL = PLAIN | {"tokens_per_microbatch": 12, "max_grad_norm": 0.5}


def called(function, *args):
    """Call a function where logits are made in chunks."""
    with mock.patch("flowrl.runtime.model.language.HEAD_TOKENS", 8):
        return function(*args)


def here():
    """Return the ranks that this process is one of."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else ALONE


@attrs.frozen(eq=False)
class WithValues(TokenMean):
    """A mean of weighted logprobs, and a pull on values."""

    def part(self, new, rows):
        return super().part(new, rows) + ((new["values"] - 3) ** 2).sum()


def own_critic(batch):
    """Return the loss of a model with two heads, and what it reads."""
    mean, _ = losses(batch)["token mean"]
    return WithValues(mean.weights, mean.lengths), ["logprobs", "values"]


def trained(
    spec,
    batch,
    fsdp=None,
    *,
    name="token mean",
    state=None,
    loads=None,
    saves=None,
    folder=None,
    steps=2,
    options=SMALL,
    ranks=None,
):
    """Update a trainer from a state, if there is one; return it in numbers."""
    trainer = TorchTrainer(spec, TrainerOptions(**options), ranks=ranks or here(), fsdp=fsdp)
    loss, outputs = own_critic(batch) if spec.head else losses(batch)[name]
    trainer.forward(batch, outputs, 1.0)  # what it gathers must be gone when weights change
    if state:
        trainer.load_state_dict(state)
    if loads:
        trainer.load_sharded(loads)
    stats = [trainer.update(batch, outputs, 0.8, loss, step).stats for step in range(steps)]
    if saves:
        trainer.save_sharded(saves)
    if folder:
        trainer.save(folder)
    parameters = list(trainer.model.parameters())
    return {
        "weights": trainer.weights(),
        "outputs": trainer.forward(batch, outputs, 1.0),
        "stats": [(each["loss"], each["grad_norm"]) for each in stats],
        "state": trainer.state_dict(),
        "kept": sum((p.to_local() if fsdp else p).numel() for p in parameters),
        "whole": sum(p.numel() for p in parameters),
    }


def assert_same(found, expected, tolerance=1e-10):
    """Assert that all ranks have what one alone has, and the same bits."""
    for each in found:
        for key in ("weights", "outputs", "stats", "state"):
            assert_close(each[key], expected[key], rtol=0, atol=tolerance)
            assert_close(each[key], found[0][key], rtol=0, atol=0)


@attrs.frozen
class Run:
    """`trained` with some of its arguments."""

    how: dict

    def __call__(self, *args):
        return trained(*args, **self.how)
