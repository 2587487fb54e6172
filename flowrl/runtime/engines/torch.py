"""The torch engine: scores with and trains a transformers model on one device."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any

import optree
import torch
from torch import Tensor, nn

from flowrl.errors import EngineError
from flowrl.ops.model import Head
from flowrl.runtime.engine import Loss, Outputs, Sequences, Update
from flowrl.runtime.forward import Packing, forward_outputs, full_precision, keeps_rows_apart
from flowrl.runtime.microbatches import Microbatch, split_rows, whole_batch
from flowrl.runtime.models import (
    DTYPES,
    ModelSpec,
    check_weights,
    load_model,
    quiet_transformers,
    weights_of,
)
from flowrl.runtime.schedule import TrainerOptions, learning_rate
from flowrl.runtime.value_head import save_model


class TorchScorer:
    """A model that runs forward: a frozen one, or what a trainer trains.

    In bfloat16 the weights are float32 and the arithmetic is torch's autocast, so that a frozen
    model and its trained copy give the same numbers.

    Args:
        spec: the model.
        head: the head that the role needs, where the spec has none.
        tokens_per_microbatch: how many tokens, context and response, go forward together.
        packing: how rows lie in a microbatch; by default "padded" on a CPU, "packed" elsewhere
            if the model keeps packed rows apart.
        role: the model's name in the program, for messages.
        model: the model itself, if it need not be loaded.

    Raises:
        EngineError: "packed" was asked of a model that lets packed rows see each other.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        head: Head | None = None,
        tokens_per_microbatch: int = 4096,
        packing: Packing | None = None,
        role: str = "model",
        model: nn.Module | None = None,
    ) -> None:
        self.spec, self.role, self.budget = spec, role, tokens_per_microbatch
        weights = torch.float32 if spec.dtype == "bfloat16" else None
        self.model = (model or load_model(spec, head, dtype=weights)).requires_grad_(False)
        self.packing = self._choose(packing)

    def forward(self, batch: Sequences, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return the named outputs, without gradient."""
        with torch.no_grad():
            found = self._room(batch, outputs)
            for part in self._split(batch):
                part.put(self._run(part, outputs, temperature), found)
            return found

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name, aliased; tied ones once."""
        return weights_of(self.model)

    def snapshot(self) -> "TorchScorer":
        """Return a frozen copy."""
        return TorchScorer(
            self.spec,
            tokens_per_microbatch=self.budget,
            packing=self.packing,
            role=self.role,
            model=deepcopy(self.model),
        )

    def _choose(self, packing: Packing | None) -> Packing:
        if packing == "padded" or (packing is None and self.spec.device == "cpu"):
            return "padded"
        if keeps_rows_apart(self.model):
            return "packed"
        if packing is None:
            return "padded"
        raise EngineError(
            f"{self.role}: a {type(self.model).__name__} lets packed rows see each other",
            hint='leave packing out, or set packing = "padded"',
        )

    def _split(self, batch: Sequences) -> list[Microbatch]:
        return split_rows(batch, self.budget, self.packing)

    def _room(self, batch: Sequences, outputs: Sequence[str]) -> Outputs:
        dtype = full_precision(next(self.model.parameters()).new_empty(0)).dtype
        return whole_batch(batch, outputs, torch.empty(0, dtype=dtype))

    def _run(self, part: Microbatch, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return outputs on the CPU, where losses are computed: they are a few numbers a token."""
        with self._precision():
            out = forward_outputs(self.model, part.batch, outputs, temperature, self.packing)
        return {name: x.cpu() for name, x in out.items()}

    def _precision(self) -> AbstractContextManager[object]:
        device = torch.device(self.spec.device).type
        return torch.autocast(device, torch.bfloat16, enabled=self.spec.dtype == "bfloat16")


class TorchTrainer(TorchScorer):
    """A model with an AdamW optimiser.

    A gradient is the same for every `tokens_per_microbatch` and packing: losses that are sums
    over rows go backward a microbatch at a time, all others in two passes over the microbatches
    with the loss between them (GradCache, Gao et al. 2021, arXiv:2101.06983).

    Args:
        spec: the model to start from.
        options: of the optimiser and of microbatches.
        head: the head that the role needs, where the spec has none.
        role: the model's name in the program, for messages.
    """

    def __init__(
        self,
        spec: ModelSpec,
        options: TrainerOptions | None = None,
        *,
        head: Head | None = None,
        role: str = "model",
    ) -> None:
        self.options = options = options or TrainerOptions()
        budget, packing = options.tokens_per_microbatch, options.packing
        super().__init__(spec, head=head, tokens_per_microbatch=budget, packing=packing, role=role)
        self.model.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=options.learning_rate,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=True,
        )

    def update(
        self,
        batch: Sequences,
        outputs: Sequence[str],
        temperature: float,
        loss: Loss,
        step: int,
    ) -> Update:
        """Take one optimiser step.

        None is taken, and no moment or weight changes, before `start_step` or if there is no
        token. A gradient of zero is a step as in torch: momentum and weight decay go on.

        Raises:
            EngineError: the loss or its gradient is not finite; no weight has changed.
        """
        new = self._room(batch, outputs)
        parts = self._split(batch) if any(len(value) for value in new.values()) else []
        frozen = step < self.options.start_step
        try:
            with torch.set_grad_enabled(not frozen):
                total = self._backward(parts, new, temperature, loss)
            self._check_finite("loss", total, step)
            stats = {"loss": total, "grad_norm": 0.0, "learning_rate": 0.0}
            if parts and not frozen:
                stats |= self._step(step)
        finally:
            self.optimizer.zero_grad()  # a loss that fails half-way leaves nothing behind
        return Update(stats | {"microbatches": len(parts)}, new)

    def _backward(
        self, parts: list[Microbatch], new: Outputs, temperature: float, loss: Loss
    ) -> float:
        """Fill `new` and, where gradients are on, the gradients; return the loss."""
        if loss.one_pass:
            return sum(self._one_pass(part, new, temperature, loss) for part in parts)
        return self._two_passes(parts, new, temperature, loss) if parts else 0.0

    def _one_pass(self, part: Microbatch, new: Outputs, temperature: float, loss: Loss) -> float:
        """Run one microbatch forward and backward; return its share of the loss."""
        out = self._run(part, list(new), temperature)
        part.put(out, new)
        share = loss.part(out, part.rows)
        if share.requires_grad:
            share.backward()
        return share.item()

    def _two_passes(
        self, parts: list[Microbatch], new: Outputs, temperature: float, loss: Loss
    ) -> float:
        """Run all microbatches forward, then each forward and backward with its cotangents."""
        with torch.no_grad():
            for part in parts:
                part.put(self._run(part, list(new), temperature), new)
        with torch.enable_grad():
            total, cotangents = loss.cotangents(new)
        if torch.is_grad_enabled():
            for part in parts:
                out, gradient = self._run(part, list(new), temperature), part.take(cotangents)
                names = list(gradient)
                torch.autograd.backward([out[n] for n in names], [gradient[n] for n in names])
        return total.item()

    def _step(self, step: int) -> dict[str, float]:
        """Clip the gradients and step."""
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.options.max_grad_norm).item()
        self._check_finite("gradient norm", norm, step)
        rate = learning_rate(self.options, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return {"grad_norm": norm, "learning_rate": rate}

    def _check_finite(self, what: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise EngineError(
                f"{self.role}: the {what} of step {step + 1} is {value}; no weight was changed",
                hint="look for infinite rewards or ratios in this batch, or lower learning_rate",
            )

    def state_dict(self) -> dict[str, object]:
        """Return weights and optimiser state, as clones on the CPU."""
        state = {"weights": self.weights(), "optimizer": self.optimizer.state_dict()}
        return dict(cloned(state))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Return to a state; the weights change in place.

        Raises:
            EngineError: the state is of another model.
        """
        weights: Mapping[str, Tensor] = state["weights"]  # type: ignore[assignment]
        check_weights(self.model, weights)
        for name, tensor in self.weights().items():
            tensor.copy_(weights[name])
        self.optimizer.load_state_dict(cloned(state["optimizer"]))  # it would keep what it is given

    def save(self, folder: str, dtype: str | None = None) -> None:
        """Write a folder that transformers' `from_pretrained` loads, a value head beside it.

        Args:
            folder: made if it does not exist.
            dtype: of the saved weights; by default that of the weights trained.
        """
        model = self.model if dtype is None else deepcopy(self.model).to(DTYPES[dtype])
        with quiet_transformers():
            save_model(model, Path(folder))


def cloned(tree: Any) -> Any:
    """Return nested dicts and lists with every tensor copied to the CPU."""
    return optree.tree_map(
        lambda leaf: leaf.detach().to("cpu", copy=True) if isinstance(leaf, Tensor) else leaf, tree
    )
