"""How values move between workers, and instructions from the controller to them.

A worker puts what it sends into the object store of its node, as an object of its own; what
passes through the controller is its `Address`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import ray
import torch
from ray import ObjectRef
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Generator
from flowrl.runtime.host import Handle, Resident
from flowrl.runtime.pools.failures import Failure, SenderEndedError, WorkerDied
from flowrl.runtime.pools.lines import Line
from flowrl.runtime.rows.selection import Selection

Address = list[ObjectRef[Any]]
"""Where values are. Small ones would else travel inside a reply, to the controller."""


@attrs.frozen(eq=False)
class Bytes:
    """A tensor as Ray moves it best: one array of bytes, which it neither pickles nor copies twice.

    Of 100 MB that saves nine tenths of the time (benchmarks/ray_cost.py).
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    array: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, tensor: Tensor) -> "Bytes":
        """Return a tensor's bytes, shared with it if it is contiguous and on the CPU."""
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return cls(tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy())

    def tensor(self) -> Tensor:
        """Return a tensor of its own: what Ray hands out is shared and must not be written."""
        made = torch.empty(self.shape, dtype=self.dtype)
        made.reshape(-1).view(torch.uint8).numpy()[:] = self.array
        return made


@attrs.frozen(eq=False)
class RaggedBytes:
    """A `Ragged` as it crosses."""

    values: Bytes
    lengths: tuple[Bytes, ...]


@attrs.frozen(eq=False)
class Weights:
    """A model as it crosses to another worker, where it can be sampled from but not run."""

    role: str
    version: int
    bytes: Mapping[str, Bytes]


@attrs.frozen(eq=False)
class RemoteEngine:
    """What stands for the engine of a model that lives on another worker."""

    tensors: Mapping[str, Tensor]

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights by name."""
        return self.tensors

    def gathered(self) -> Iterator[tuple[str, Tensor]]:
        """Yield them one by one: they are here."""
        yield from self.tensors.items()

    def computed(self) -> Mapping[str, Tensor]:
        """Return the tensors that it runs with: none, it doesn't run."""
        return {}


@attrs.frozen(eq=False)
class Written:
    """What stands for the engine of a model whose weights were written into its generator.

    Attributes:
        role: of the model.
        generator: that samples from it.
        loaded: for each generator, the model and version that it has.
    """

    role: str
    generator: Generator
    loaded: Mapping[Generator, tuple[Any, int]]

    def weights(self) -> Mapping[str, Tensor]:
        """Return what was written: of several ranks' model, this one's part.

        Raises:
            EngineError: the generator has been given other weights since.
        """
        model, _ = self.loaded.get(self.generator, (None, 0))
        there = model is not None and model.engine is self
        if not there:
            raise EngineError(
                f"`{self.role}` was resharded into its generator, which has been "
                "given other weights since",
                hint="sample from a model before another of the same role is sampled from",
            )
        return self.generator.stored()

    def computed(self) -> Mapping[str, Tensor]:
        """Return the tensors that it runs with: none, it doesn't run."""
        return {}


def put(values: Sequence[Any]) -> Address:
    """Make values ready for other workers, as they are now: of a model, its weights."""
    return [ray.put([_portable(value) for value in values])]


def get(address: Address) -> list[Any]:
    """Return the values that another worker has put; a model is held by its weights.

    Raises:
        SenderEndedError: the other worker is gone, and with it what it has put.
    """
    try:
        found = ray.get(address[0])
    except ObjectLostError as error:
        raise SenderEndedError(
            f"what another worker sent is lost ({type(error).__name__})",
            hint="look into Ray's logs on that worker's node: it ended, or ran out of disk",
        ) from error
    return [_arrived(value) for value in found]


def size(value: Any) -> int:
    """Return the bytes of a value's tensors; rows of the data have none."""
    match value:
        case Tensor():
            return value.nbytes
        case Ragged():
            return size((value.values, *value.lengths))
        case Selection():
            return size((*value.index, *value.counts))
        case Handle():
            return size(list(value.engine.weights().values()))
        case list() | tuple():
            return sum(map(size, value))
    return 0


def _portable(value: Any) -> Any:
    if isinstance(value, Ragged):
        return RaggedBytes(Bytes.of(value.values), tuple(Bytes.of(x) for x in value.lengths))
    if not isinstance(value, Handle):
        return value
    weights = {name: Bytes.of(x) for name, x in value.engine.weights().items()}
    return Weights(value.resident.role, value.version, weights)


def _arrived(value: Any) -> Any:
    if isinstance(value, RaggedBytes):
        return Ragged(value.values.tensor(), tuple(level.tensor() for level in value.lengths))
    if not isinstance(value, Weights):
        return value
    engine: Any = RemoteEngine({name: x.tensor() for name, x in value.bytes.items()})
    return Handle(Resident(value.role, engine, value.version), value.version)


@attrs.define(eq=False)
class RayLine(Line):
    """A line to an actor.

    Attributes:
        actor: the worker.
    """

    actor: Any = attrs.field(kw_only=True)

    def send(self, method: str, dead: Sequence[int], args: Sequence[Any], replies: int) -> Any:
        """Call the actor."""
        return self.actor.do.options(num_returns=replies).remote(method, dead, *args)


class RayReplies:
    """Replies as objects of Ray."""

    def get(self, replies: Any) -> Any:
        """Wait for replies; what a worker raised comes out of Ray's wrapping."""
        try:
            return ray.get(replies)
        except RayTaskError as error:
            if isinstance(error.cause, Failure):
                raise error.cause from error
            raise
        except RayActorError as error:
            raise WorkerDied from error

    def arrived(self, replies: Sequence[Any]) -> bool:
        """Return whether all are there."""
        return len(ray.wait(list(replies), num_returns=len(replies), timeout=0)[0]) == len(replies)
