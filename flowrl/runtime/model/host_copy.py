"""Host memory for what leaves a device: weights and optimizer state of a model that waits."""

from collections.abc import Iterable

import torch
from torch import Tensor

from flowrl.errors import EngineError


class HostCopy:
    """Keeps what tensors have while their own memory is let go.

    They stay the same tensors, so whoever refers to them needn't know; meanwhile nobody may read
    them. What hasn't changed since it was copied isn't copied again.

    Args:
        device: where tensors give memory back; those that are elsewhere stay. From a GPU, copies
            are in pinned memory.
    """

    def __init__(self, device: str) -> None:
        self.kind = torch.device(device).type
        self.changed = True
        """Whether copies are older than the tensors; for those who change them to say."""
        self.copies: dict[str, Tensor] = {}
        self.gone: dict[str, tuple[Tensor, int]] = {}
        """Tensors without memory, and the bytes that each takes back."""

    @torch.no_grad()
    def take(self, tensors: Iterable[tuple[str, Tensor]], *, keep: bool = True) -> None:
        """Let the memory of tensors go, one after another.

        Args:
            tensors: by name, always the same; each has its memory for itself.
            keep: what they have. Else they come back with anything in them.
        """
        for name, tensor in tensors:
            if tensor.device.type != self.kind or name in self.gone:
                continue
            if keep and (self.changed or name not in self.copies):
                self._copy(name, tensor)
            storage = tensor.untyped_storage()
            self.gone[name] = tensor, storage.nbytes()
            storage.resize_(0)
        self.changed = not keep
        self._settle()

    @torch.no_grad()
    def give_back(self) -> None:
        """Give all tensors memory again, with what they had."""
        for name, (tensor, size) in self.gone.items():
            tensor.untyped_storage().resize_(size)
            if not self.changed:
                tensor.copy_(self.copies[name], non_blocking=True)
        self.gone.clear()
        self._settle()

    def check(self, model: str) -> None:
        """Refuse to run a model whose memory is gone.

        Raises:
            EngineError: it is.
        """
        if self.gone:
            raise EngineError(
                f"`{model}` sleeps: its weights are in host memory, or gone",
                hint="wake its engine before it is run",
            )

    def of(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor, or while its memory is gone what is kept of it."""
        return self.copies[name] if name in self.gone else tensor

    def _copy(self, name: str, tensor: Tensor) -> None:
        if name not in self.copies:
            pinned = self.kind == "cuda"
            self.copies[name] = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
        self.copies[name].copy_(tensor, non_blocking=True)

    def _settle(self) -> None:
        """Wait until copies are done: whoever reads them next may do so on the host."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
