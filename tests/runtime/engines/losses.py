"""Losses written by hand, and a trainer whose first step shows the gradient."""

import math

import attrs
import torch

from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.training.schedule import TrainerOptions


@attrs.frozen(eq=False)
class TokenMean:
    """Minus the mean of weighted logprobs: a sum over rows once the divisor is known."""

    weights: torch.Tensor  # f[all tokens]
    lengths: torch.Tensor  # i64[row]
    one_pass: bool = True

    def part(self, new, rows):
        chosen = torch.cat([self.weights.split(self.lengths.tolist())[row] for row in rows])
        return -(new["logprobs"] * chosen).sum() / len(self.weights)

    def cotangents(self, new):
        return gradients(self.whole, new)

    def whole(self, new):
        return self.part(new, torch.arange(len(self.lengths)))


@attrs.frozen(eq=False)
class Pairwise:
    """Logistic loss of summed logprobs of neighbouring rows, as DPO's."""

    lengths: torch.Tensor
    one_pass: bool = False

    def cotangents(self, new):
        def whole(new):
            sums = torch.stack([row.sum() for row in new["logprobs"].split(self.lengths.tolist())])
            return -torch.nn.functional.logsigmoid(sums[0:6:2] - sums[1:6:2]).mean()

        return gradients(whole, new)


@attrs.frozen(eq=False)
class BatchStatistic:
    """Reads two outputs over the whole batch: whitened logprobs times entropy."""

    one_pass: bool = False

    def cotangents(self, new):
        def whole(new):
            lp = new["logprobs"]
            return ((lp - lp.mean()) / lp.std() * new["entropy"] ** 2).mean()

        return gradients(whole, new)


@attrs.frozen(eq=False)
class Constant:
    """A loss of a given value, whatever the model says."""

    value: float
    one_pass: bool = True

    def part(self, new, rows):
        return (new["logprobs"] * 0).sum() + self.value


def gradients(whole, new):
    """Return a loss and its gradient in each output that it reads."""
    new = {name: value.detach().requires_grad_() for name, value in new.items()}
    loss = whole(new)
    found = torch.autograd.grad(loss, list(new.values()), allow_unused=True)
    return loss.detach(), {n: g for n, g in zip(new, found, strict=True) if g is not None}


def losses(batch):
    lengths = batch.tokens.lengths[0]
    weights = torch.linspace(-1, 2, int(lengths.sum()), dtype=torch.float64)
    return {
        "token mean": (TokenMean(weights, lengths), ["logprobs"]),
        "token mean in two passes": (TokenMean(weights, lengths, one_pass=False), ["logprobs"]),
        "pairs": (Pairwise(lengths), ["logprobs"]),
        "batch statistic": (BatchStatistic(), ["logprobs", "entropy"]),
    }


PLAIN = {"learning_rate": 0.1, "eps": 1.0, "max_grad_norm": math.inf}
"""With eps 1, AdamW's first step is a smooth function of the gradient: g / (|g| + 1)."""


def trainer_of(folder, dtype="float64", **options):
    return TorchTrainer(ModelSpec(folder, dtype=dtype), TrainerOptions(**(PLAIN | options)))
