"""The torch scorer: runs a transformers model forward, on one rank or several."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import attrs
import torch
from torch import Tensor, nn

from flowrl.ops.model import Head
from flowrl.runtime.engine import Outputs, Sequences
from flowrl.runtime.model.attention import Packing, choose_attention
from flowrl.runtime.model.forward import Forward
from flowrl.runtime.model.fsdp2 import chunk, laid_as, shard, units, whole, with_chunk
from flowrl.runtime.model.host_copy import HostCopy
from flowrl.runtime.model.language import full_precision
from flowrl.runtime.model.layers import compile_layers
from flowrl.runtime.model.lora import adapter_off, copied
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.model.narrow import widen
from flowrl.runtime.model.weights import weights_of
from flowrl.runtime.ranks.ranks import ALONE, Fsdp2, Ranks
from flowrl.runtime.training.microbatches import Microbatch, split_rows, whole_batch
from flowrl.runtime.training.schedule import ForwardOptions


class TorchScorer:
    """A model that runs forward: a frozen one, or what a trainer trains.

    In bfloat16 the weights are float32 and the arithmetic is torch's autocast. A model that never
    learns has those of linear layers in bfloat16, which takes half the memory and gives the same
    numbers as its trained copy (`spec.narrow`). The base of an adapter is in bfloat16, and gives
    these numbers too if its folder was saved in bfloat16; the weights of such a model are those of
    its adapter.

    On several ranks each calls the same methods with the same arguments, and gets the same results.
    Rows are divided by their lengths; all ranks run as many microbatches, some without rows.

    Args:
        spec: the model.
        options: of microbatches, and of how they are computed.
        head: the head that the role needs, where the spec has none.
        role: the model's name in the program, for messages.
        model: the model itself, if it need not be loaded, attends and is compiled already.
        ranks: this process and those that run the model with it.
        fsdp: how its weights are divided over them; every rank has all if not given.

    Raises:
        EngineError: the packing or the attention that is asked for is not there for the model; or
            its layers are to be compiled, and it has none.
    """

    def __init__(
        self,
        spec: ModelSpec,
        options: ForwardOptions | None = None,
        *,
        head: Head | None = None,
        role: str = "model",
        model: nn.Module | None = None,
        ranks: Ranks = ALONE,
        fsdp: Fsdp2 | None = None,
    ) -> None:
        options = options or ForwardOptions()
        self.spec, self.head, self.role = spec, head, role
        self.ranks, self.fsdp = ranks, fsdp if ranks.count > 1 else None
        loaded = attrs.evolve(spec, device="cpu") if self.fsdp else spec
        autocast = spec.dtype == "bfloat16"
        wide = autocast and not spec.lora and spec.narrow != "all"
        dtype = torch.float32 if wide else None
        self.model = (model or load_model(loaded, head, dtype)).requires_grad_(False)
        if autocast and spec.lora and model is None:
            widen(self.model)
        numbers = sum(parameter.numel() for parameter in self.model.parameters())
        ranks.agree(f"{numbers} parameters of `{role}`")
        packing = options.packing
        if model is None:
            packing = choose_attention(self.model, spec, options.attention, packing, role)
        self.packing: Packing = packing or "padded"
        self.options = attrs.evolve(options, packing=self.packing)
        self.call, self.kept = Forward(self.model, options.compile), HostCopy(spec.device)
        if self.fsdp:
            with ranks.together(f"`{role}`, to be divided"):
                shard(self.call, self.model, self.fsdp, ranks, spec.device, autocast=wide)
        if options.compile and model is None:
            compile_layers(self.model, role)

    def forward(self, batch: Sequences, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return the named outputs, without gradient."""
        found, parts = self._room(batch, outputs), self._split(batch)
        with torch.no_grad(), self.ranks.together(microbatches(self.role, parts)):
            self._fill(found, parts, temperature)
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name; tied ones once. They are aliased unless they are divided."""
        return dict(self.gathered())

    def stored(self) -> dict[str, Tensor]:
        """Return what this rank has of each weight, by name, aliased; of tied ones the first.

        Of a model that sleeps, it is what the host has.
        """
        return {name: self.kept.of(name, chunk(tensor)) for name, tensor in self.own().items()}

    def own(self) -> dict[str, Tensor]:
        """Return the weights as this engine keeps them, by name; tied ones once."""
        return self.computed()

    def computed(self) -> dict[str, Tensor]:
        """Return the tensors that it runs with, by name; tied ones once."""
        return weights_of(self.model)

    def gathered(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights one by one; if one rank asks for them, all must."""
        own = self.own()
        with self.ranks.together(f"{len(own)} weights of `{self.role}`"):
            for name, tensor in own.items():
                kept = self.kept.copies[name] if name in self.kept.gone else None
                yield name, whole(tensor if kept is None else with_chunk(tensor, kept))

    def sleep(self, *, keep: bool = True) -> None:
        """Let the device's memory go: weights and optimizer state go to the host."""
        for unit in units(self.call):
            unit.reshard()
        self.kept.take(self._lasting(), keep=keep)

    def wake(self) -> None:
        """Take the memory back, with what the host has kept."""
        self.kept.give_back()

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Be on the device, and asleep afterwards if it is now."""
        asleep = bool(self.kept.gone)
        self.wake()
        try:
            yield
        finally:
            if asleep:
                self.sleep()

    def _lasting(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what this rank has on the device between ops, by name."""
        for name, parameter in self.model.named_parameters():
            yield name, chunk(parameter.detach())

    def average(self, weights: Mapping[str, Tensor], decay: float) -> None:
        """Move towards other weights, in place: to decay * own + (1 - decay) * other."""
        with torch.no_grad(), self.awake():
            self.kept.changed = True
            for name, own in self.own().items():
                if own.is_floating_point():
                    other = laid_as(weights[name].to(own.device, own.dtype), own)
                    own.mul_(decay).add_(other, alpha=1 - decay)

    def snapshot(self) -> "TorchScorer":
        """Return a frozen copy; divided weights are put where others have been read from disk."""
        with self.awake():
            model = None if self.fsdp else copied(self.model)
        copy = TorchScorer(
            self.spec,
            self.options,
            head=self.head,
            role=self.role,
            model=model,
            ranks=self.ranks,
            fsdp=self.fsdp,
        )
        if self.fsdp:
            stored = self.stored()
            for name, tensor in copy.stored().items():
                tensor.copy_(stored[name])
        return copy

    def base(self) -> "Base":
        """Return the model without its adapter, as a frozen one; it takes no memory."""
        return Base(self)

    def _split(self, batch: Sequences) -> list[Microbatch]:
        self.kept.check(self.role)
        budget = self.options.tokens_per_microbatch
        return split_rows(batch, budget, self.packing, self.ranks.index, self.ranks.count)

    def _room(self, batch: Sequences, outputs: Sequence[str]) -> Outputs:
        own = next(self.model.parameters()).dtype
        return whole_batch(batch, outputs, full_precision(torch.empty(0, dtype=own)))

    def _fill(self, new: Outputs, parts: Sequence[Microbatch], temperature: float) -> None:
        """Run microbatches forward; fill in what they, and those of the other ranks, give."""
        with torch.no_grad():
            for part in parts:
                part.put(self._run(part, list(new), temperature), new)
        self.ranks.sum(new.values())

    def _run(self, part: Microbatch, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return outputs on the CPU, where losses are computed: they are a few numbers a token."""
        with self._precision():
            out = self.call(part.batch, outputs, temperature, self.packing)
        if not torch.is_grad_enabled():
            for unit in units(self.call):  # no backward will, and the next forward would not gather
                unit.reshard()
        return {name: (x if len(part.rows) else x[:0]).cpu() for name, x in out.items()}

    def _precision(self) -> AbstractContextManager[object]:
        device = torch.device(self.spec.device).type
        return torch.autocast(device, torch.bfloat16, enabled=self.spec.dtype == "bfloat16")


@attrs.frozen(eq=False)
class Base:
    """The base of a model under its adapter, which stays as it is while that is trained.

    Attributes:
        whole: has the model.
    """

    whole: TorchScorer

    def forward(self, batch: Sequences, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return the named outputs, without gradient."""
        with adapter_off(self.whole.model):
            return self.whole.forward(batch, outputs, temperature)


def microbatches(role: str, parts: Sequence[Microbatch]) -> str:
    """Say how many there are: all ranks run as many."""
    return f"{len(parts)} microbatch{'es' if len(parts) != 1 else ''} of `{role}`"
