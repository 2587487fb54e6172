"""Ranks: the workers of a pool that run its models together, and what they add up."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta

import attrs
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, Store, TCPStore  # type: ignore[attr-defined]

from flowrl.runtime.out_of_memory import lacks_memory
from flowrl.runtime.ranks.agreement import Agreement, missing, numbered, numbers


@attrs.frozen
class Ranks:
    """A place among the workers that run a pool's models together.

    Every one of them has the same values and is told the same. In a model op each runs its own
    rows; what it makes of them is added up, so that all have all of it, bit for bit the same.

    Attributes:
        index: this worker's number.
        count: how many there are; one alone talks to nobody.
        timeout: seconds to wait for the others.
        group: in which they talk; all processes that have joined, if not given.
        agreement: where they say what they are about to do.
    """

    index: int = 0
    count: int = 1
    timeout: float = 600.0
    group: ProcessGroup | None = attrs.field(default=None, eq=False)
    agreement: Agreement | None = attrs.field(default=None, eq=False)

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Add up each tensor over the ranks, in place; all get the same bits."""
        for tensor in tensors:
            if self.count > 1 and tensor.numel():
                dist.all_reduce(tensor, group=self.group)

    def total(self, number: float) -> float:
        """Return the sum of a number over the ranks."""
        one = torch.tensor(number, dtype=torch.float64)
        self.sum([one])
        return one.item()

    def agree(self, what: str) -> None:
        """Wait until all ranks are about to do this.

        Raises:
            RanksDisagreeError: one is about to do something else; told at once.
            RankMissingError: one died, or did not come in time.
        """
        if self.agreement:
            self.agreement.reach(what)

    def called(self, ranks: Sequence[int]) -> str:
        """Return what messages call some of the ranks."""
        return self.agreement.called(ranks) if self.agreement else numbers(ranks)

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """Agree on what is done inside, and tell a collective that fails there as what it is.

        Raises:
            RanksDisagreeError: a rank is about to do something else.
            RankMissingError: another rank died, or did not come in time.
        """
        its = self.agreement
        self.agree(what)
        try:
            with its.inside(what) if its else nullcontext():
                yield
        except RuntimeError as error:
            if lacks_memory(error) or not _of_collective(error):
                raise
            told = numbered(self.index, self.count), what, self.timeout
            raise (its.missing(what) if its else missing(*told)) from error


ALONE = Ranks()


@attrs.frozen
class Fsdp2:
    """How the weights of a model lie over ranks: each has a chunk of every tensor (FSDP2).

    Attributes:
        reshard_after_forward: gathered weights of a layer go after its forward and are gathered
            again for its backward; else they stay until then.
        replicas: groups of neighbouring ranks that have all chunks each; gradients are added up
            over them too (hybrid sharding, Zhao et al. 2023, arXiv:2304.11277, sec. 3.2.2).
        offload: chunks of weights, gradients and optimizer state are in host memory, where the
            optimizer steps; a layer's weights are on the GPU while they are gathered.
    """

    reshard_after_forward: bool = True
    replicas: int = 1
    offload: bool = False


def open_store(host: str) -> TCPStore:
    """Return a store at a free port, where ranks find each other; it ends with this process."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


def join(ranks: Ranks, store: Store, names: Sequence[str] = ()) -> Ranks:
    """Wait for all ranks, and connect to them: gloo for what is on CPUs, nccl for GPUs.

    Args:
        ranks: a place among them.
        store: where they find each other.
        names: what messages call each of them; by their numbers, if not given.

    Returns:
        the same ranks, who agree from now on.

    Raises:
        RankMissingError: one did not come in time.
    """
    timeout = timedelta(seconds=ranks.timeout)
    store.set_timeout(timeout)
    agreement = Agreement(store, ranks.index, ranks.count, ranks.timeout, names)
    own = attrs.evolve(ranks, agreement=agreement)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with own.together("joining"):
        dist.init_process_group(
            backend, store=store, rank=ranks.index, world_size=ranks.count, timeout=timeout
        )
    return own


def connect(address: str, ranks: Ranks) -> TCPStore:
    """Return the store that rank 0 has opened at `host:port`."""
    host, _, port = address.rpartition(":")
    return TCPStore(host, int(port), timeout=timedelta(seconds=ranks.timeout))


def among(of: Ranks, members: Sequence[int]) -> Ranks | None:
    """Return the place of this rank among some of those that have joined; None if it is not one.

    All that have joined must ask for the same groups, in the same order.
    """
    group = dist.new_group(list(members), timeout=timedelta(seconds=of.timeout))
    agreement = of.agreement.among(members) if of.agreement else None
    if of.index not in members:
        return None
    return Ranks(members.index(of.index), len(members), of.timeout, group, agreement)


def _of_collective(error: RuntimeError) -> bool:
    """Whether a process group or its store failed; gloo tells by its text alone."""
    known = isinstance(error, dist.DistError)
    return known or any(name in str(error) for name in ("gloo", "NCCL", "ProcessGroup"))
