"""The torch trainer: trains a transformers model, on one rank or several."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optree
import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.ops.model import Head
from flowrl.runtime.engine import Loss, Outputs, Sequences, Update
from flowrl.runtime.engines.torch_scorer import TorchScorer, microbatches
from flowrl.runtime.model.fsdp2 import chunk, laid_as, whole
from flowrl.runtime.model.layers import checkpoint_layers
from flowrl.runtime.model.lora import merged, save_adapter
from flowrl.runtime.model.models import ModelSpec, quiet_transformers
from flowrl.runtime.model.sharded_state import load_state, save_state
from flowrl.runtime.model.value_head import save_model
from flowrl.runtime.model.weights import check_weights, parameters_of, shapes_of
from flowrl.runtime.ranks.ranks import ALONE, Fsdp2, Ranks
from flowrl.runtime.training.masters import Masters, adopt
from flowrl.runtime.training.microbatches import Microbatch
from flowrl.runtime.training.offload import offload_moments
from flowrl.runtime.training.schedule import TrainerOptions, learning_rate


class TorchTrainer(TorchScorer):
    """A model with an AdamW optimizer; of a model with an adapter, that alone is trained.

    A gradient is the same for every `tokens_per_microbatch` and packing: losses that are sums
    over rows go backward a microbatch at a time, all others in two passes over the microbatches
    with the loss between them (GradCache, Gao et al. 2021, arXiv:2101.06983). Nor does the number
    of ranks change it: each loss sees all rows, and gradients add up.

    Args:
        spec: the model to start from.
        options: of the optimizer and of microbatches.
        head: the head that the role needs, where the spec has none.
        role: the model's name in the program, for messages.
        ranks: this process and those that train the model with it.
        fsdp: how weights and optimizer state are divided over them.
    """

    options: TrainerOptions

    def __init__(
        self,
        spec: ModelSpec,
        options: TrainerOptions | None = None,
        *,
        head: Head | None = None,
        role: str = "model",
        ranks: Ranks = ALONE,
        fsdp: Fsdp2 | None = None,
    ) -> None:
        options = options or TrainerOptions()
        super().__init__(spec, options, head=head, role=role, ranks=ranks, fsdp=fsdp)
        if options.checkpointing:
            checkpoint_layers(self.model, options.offload_activations)
        self.trained = [p.requires_grad_(True) for p in parameters_of(self.model)]
        self.optimizer = torch.optim.AdamW(
            self.trained,
            lr=options.learning_rate,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=True,
        )
        self.masters: Masters | None = None
        if options.offload_optimizer:
            offload_moments(self.optimizer)

    def share(self, views: Mapping[str, Tensor]) -> None:
        """Compute with another engine's own tensors from now on; each update writes into them.

        They get this model's weights; bfloat16 ones are trained in float32 behind them.

        Args:
            views: by name.

        Raises:
            EngineError: weights are divided over ranks or trained by an adapter, an update was
                taken already, the model sleeps, or a tensor is of another shape. Nothing has
                changed.
        """
        if self.ranks.count > 1 or self.spec.lora or self.optimizer.state:
            raise EngineError(
                f"`{self.role}` may share weights on one rank, without an adapter, before its "
                "first update"
            )
        if self.kept.gone:
            raise EngineError(f"`{self.role}` leaves its device while others work")
        if self.spec.dtype != "bfloat16":
            adopt(self.model, views)
            return
        self.masters = masters = Masters(self.model, views)
        self.trained = [*masters.named.values()]
        self.optimizer.param_groups[0]["params"] = self.trained
        self.optimizer.register_step_post_hook(lambda *_: masters.write())

    def own(self) -> dict[str, Tensor]:
        """Return the weights that are trained, and buffers, by name; tied ones once."""
        return super().own() | (self.masters.named if self.masters else {})

    def average(self, weights: Mapping[str, Tensor], decay: float) -> None:
        """Move towards other weights, in place: to decay * own + (1 - decay) * other."""
        super().average(weights, decay)
        if self.masters:
            self.masters.write()

    def update(
        self,
        batch: Sequences,
        outputs: Sequence[str],
        temperature: float,
        loss: Loss,
        step: int,
    ) -> Update:
        """Take one optimizer step.

        None is taken, and no moment or weight changes, before `start_step` or if there is no
        token. A gradient of zero is a step as in torch: momentum and weight decay go on.

        Raises:
            EngineError: the loss or its gradient is not finite; no weight has changed.
        """
        new = self._room(batch, outputs)
        parts = self._split(batch) if any(len(value) for value in new.values()) else []
        frozen = step < self.options.start_step
        try:
            work = microbatches(self.role, parts)
            with torch.set_grad_enabled(not frozen), self.ranks.together(work):
                total = self._backward(parts, new, temperature, loss)
            self._check_finite("loss", total, step)
            stats = {"loss": total, "grad_norm": 0.0, "learning_rate": 0.0}
            if parts and not frozen:
                with self.ranks.together(f"the step of `{self.role}`"):
                    stats |= self._step(step)
        finally:
            self.optimizer.zero_grad()  # a loss that fails half-way leaves nothing behind
        return Update(stats | {"microbatches": len(parts)}, new)

    def _backward(
        self, parts: list[Microbatch], new: Outputs, temperature: float, loss: Loss
    ) -> float:
        """Fill `new` and, where gradients are on, the gradients; return the loss."""
        if not loss.one_pass:
            return self._two_passes(parts, new, temperature, loss) if parts else 0.0
        total = sum(self._one_pass(part, new, temperature, loss) for part in parts)
        self.ranks.sum(new.values())
        return self.ranks.total(total)

    def _one_pass(self, part: Microbatch, new: Outputs, temperature: float, loss: Loss) -> float:
        """Run one microbatch forward and backward; return its share of the loss."""
        out = self._run(part, list(new), temperature)
        part.put(out, new)
        share = loss.part(out, part.rows) if len(part.rows) else torch.zeros(())
        if torch.is_grad_enabled():
            reached = sum(x[:0].sum() for x in out.values())  # 0: ranks go backward together
            (share + reached).backward()
        return share.item()

    def _two_passes(
        self, parts: list[Microbatch], new: Outputs, temperature: float, loss: Loss
    ) -> float:
        """Run all microbatches forward, then each forward and backward with its cotangents."""
        self._fill(new, parts, temperature)
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
        if not self.fsdp:  # FSDP has added up those of its chunks
            self.ranks.sum(p.grad for p in self.trained if p.grad is not None)
        clipped = torch.nn.utils.clip_grad_norm_(self.trained, self.options.max_grad_norm)
        norm = whole(clipped).item()
        self._check_finite("gradient norm", norm, step)
        rate = learning_rate(self.options, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.kept.changed = True
        self.optimizer.step()
        return {"grad_norm": norm, "learning_rate": rate}

    def _check_finite(self, what: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise EngineError(
                f"{self.role}: the {what} of step {step + 1} is {value}; no weight was changed",
                hint="look for infinite rewards or ratios in this batch, or lower learning_rate",
            )

    def _lasting(self) -> Iterator[tuple[str, Tensor]]:
        yield from super()._lasting()
        for number, state in enumerate(self.optimizer.state.values()):
            for name, x in state.items():
                if x.dim():  # the count of steps stays where it is
                    yield f"{name} {number}", chunk(x)

    def state_dict(self) -> dict[str, object]:
        """Return weights and optimizer state, whole, as clones on the CPU."""
        state = {"weights": self.own(), "optimizer": self.optimizer.state_dict()}
        with self.awake(), self.ranks.together(f"the state of `{self.role}`"):
            return dict(cloned(state))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Return to a state; the weights change in place.

        Raises:
            EngineError: the state is of another model.
        """
        weights: Mapping[str, Tensor] = state["weights"]  # type: ignore[assignment]
        check_weights(self.model, weights, shapes_of(self.model))
        optimizer = cloned(state["optimizer"])  # it would keep what it is given
        for number, parameter in enumerate(self.trained):
            moments = optimizer["state"].get(number, {})
            for name, x in moments.items():
                moments[name] = laid_as(x, parameter) if x.dim() else x
        with self.awake():
            self.kept.changed = True
            with torch.no_grad():
                for name, tensor in self.own().items():
                    tensor.copy_(laid_as(weights[name], tensor))
            if self.masters:
                self.masters.write()
            self.optimizer.load_state_dict(optimizer)

    def save_sharded(self, folder: str) -> None:
        """Write weights and optimizer state, each rank its own; any number of ranks loads them.

        Raises:
            EngineError: the folder can't be written, or weights are shared.
        """
        self._check_unshared()
        with self.awake(), self.ranks.together(f"the shards of `{self.role}`, saved"):
            save_state(folder, self.model, self.optimizer, self.ranks)

    def load_sharded(self, folder: str) -> None:
        """Return to a state that was written in shards; the weights change in place.

        Raises:
            EngineError: the folder holds no state, or that of another model; or weights are shared.
        """
        self._check_unshared()
        with self.awake(), self.ranks.together(f"the shards of `{self.role}`, loaded"):
            self.kept.changed = True
            load_state(folder, self.model, self.optimizer, self.ranks)

    def _check_unshared(self) -> None:
        """Refuse shards of what has masters: torch would write the model's own narrow weights."""
        if self.masters:
            raise EngineError(
                f"`{self.role}` computes with another engine's weights: its own are in no shards",
                hint="take `state_dict`, which has them",
            )

    def save(self, folder: str) -> None:
        """Write a folder that transformers' `from_pretrained` loads, a value head beside it.

        An adapter is merged into its base; in `adapter` in that folder it is as peft loads it. Of
        several ranks the first one writes.

        Args:
            folder: made if it does not exist.
        """
        first = self.ranks.index == 0
        weights = {name: x.to("cpu") for name, x in self._merged() if first}
        if first:
            with quiet_transformers():
                save_model(self.model, Path(folder), weights)
        if self.spec.lora:
            own = {name: x.to("cpu") for name, x in self.gathered()}
            if first:
                save_adapter(self.model, Path(folder) / "adapter", own, self.spec.path)

    def _merged(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of the whole model one by one; of several ranks, all must ask."""
        if not self.spec.lora:
            yield from self.gathered()
            return
        with self.awake(), self.ranks.together(f"`{self.role}`, merged"):
            yield from merged(self.model)


def cloned(tree: Any) -> Any:
    """Return nested dicts and lists with every tensor copied to the CPU, whole."""
    return optree.tree_map(
        lambda leaf: (
            whole(leaf.detach()).to("cpu", copy=True) if isinstance(leaf, Tensor) else leaf
        ),
        tree,
    )
