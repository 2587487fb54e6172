"""Whether what samples has the weights that train, number for number."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import attrs
import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.engine import Scorer
from flowrl.runtime.model.fsdp2 import chunk


@runtime_checkable
class Readable(Protocol):
    """A generator whose weights can be read where it computes with them.

    Attributes:
        cache_version: under which it finds what it has cached; another one after other weights.
            None if nothing is cached from call to call.
        scales: by what parameters are multiplied where they are held, by name; 1 if not given.
    """

    cache_version: int | None
    scales: Mapping[str, float]

    def held(self) -> Mapping[str, Tensor]:
        """Return the tensors that it computes with and that are parameters, by name.

        Where ranks divide them, they are this rank's parts.
        """
        ...


@attrs.frozen(eq=False)
class Pair:
    """A tensor as it is computed with, the parameter that it is of, and by what that is scaled."""

    own: Tensor
    trained: Tensor
    scale: float = 1.0

    def expected(self) -> Tensor:
        """Return what the first is to be: rounded to its type, then scaled in it."""
        narrow = self.trained.to(self.own)
        return narrow if self.scale == 1 else narrow * self.scale


@attrs.define
class Sampled:
    """What a generator has sampled with: the newest weights, of how many, and their cache."""

    weights: Any = None
    count: int = 0
    cache_version: int | None = None


@attrs.define(eq=False)
class Comparison:
    """Compares the weights that generators have sampled with to those that train, now and then.

    It costs a read of both; nothing is copied but numbers that are narrowed, tensor by tensor.

    Attributes:
        every: versions from one comparison to the next, from the first on; 0 is never.
    """

    every: int = 0
    _by_generator: dict[Any, Sampled] = attrs.field(factory=dict)

    def due(self, generator: Any, weights: Any) -> bool:
        """Whether to compare now; each version is asked for as often as it is sampled from.

        Args:
            generator: that has sampled.
            weights: the model and its version.
        """
        if not self.every or not isinstance(generator, Readable):
            return False
        sampled = self._by_generator.setdefault(generator, Sampled())
        if sampled.weights == weights:
            return False
        sampled.weights, sampled.count = weights, sampled.count + 1
        return (sampled.count - 1) % self.every == 0

    def figures(
        self, role: str, generator: Readable, engine: Scorer, *, shared: bool
    ) -> dict[str, float]:
        """Compare; return how many tensors were, how many are one, and the cache's version.

        Parts are compared with parts, where weights were written as such, and else left out.

        Args:
            role: of the model.
            generator: that has sampled.
            engine: has the weights that it is to have sampled with, or what stands for it has.
            shared: whether the tensors are to be those that the engine computes with.

        Raises:
            EngineError: a tensor has other numbers, or is another one than the engine's; or what
                was cached under the weights compared before can be found still.
        """
        held, trained = generator.held(), engine.weights()
        pairs = {
            name: Pair(own, trained[name], generator.scales.get(name, 1.0))
            for name, own in held.items()
            if name in trained and own.shape == trained[name].shape
        }
        _same_numbers(role, pairs)
        theirs = {name: chunk(tensor).data_ptr() for name, tensor in engine.computed().items()}
        one = [name for name in pairs if held[name].data_ptr() == theirs.get(name)]
        if shared and (apart := [name for name in pairs if name not in one]):
            raise EngineError(
                f"`{role}`: the generator no longer shares the trainer's tensor `{apart[0]}`"
                f"{_more(apart)}",
                hint="leave out whatever replaces an engine's tensors during a run",
            )
        counts = {"compared": len(pairs), "shared": len(one)}
        found: dict[str, float] = {f"{role}/weights_{name}": n for name, n in counts.items()}
        return found | self._cache(role, generator)

    def _cache(self, role: str, generator: Readable) -> dict[str, float]:
        """Return the version of a generator's cache, if it has one, once it is another one."""
        now, sampled = generator.cache_version, self._by_generator[generator]
        if now is None:
            return {}
        if now == sampled.cache_version:
            raise EngineError(
                f"the generator of `{role}` got other weights, but its cache still has version "
                f"{now}: what it cached under the old ones can be hit",
                hint="an engine must drop its cache, or change its key, when weights arrive",
            )
        sampled.cache_version = now
        return {f"{role}/cache_version": now}


def _same_numbers(role: str, pairs: Mapping[str, Pair]) -> None:
    differ = [name for name, pair in pairs.items() if not torch.equal(pair.own, pair.expected())]
    if not differ:
        return
    first = pairs[differ[0]]
    count = int((first.own != first.expected()).sum())
    raise EngineError(
        f"`{role}` is not sampled from with the weights that train: `{differ[0]}` differs in "
        f"{count:,} of {first.own.numel():,} elements{_more(differ)}",
        hint="start again from a checkpoint; nothing but its trainer may write an engine's weights",
    )


def _more(names: list[str]) -> str:
    return f", as do {len(names) - 1} more" if len(names) > 1 else ""
