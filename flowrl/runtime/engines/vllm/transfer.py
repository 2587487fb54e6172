"""New weights on their way into vLLM: in buckets, by its weight transfer API."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.weights import repack_tied, unpack_experts
from flowrl.runtime.out_of_memory import lacks_memory

BACKEND, RECEIVER = "flowrl", "flowrl.runtime.engines.vllm.receiver"
"""The name by which vLLM knows what takes weights, and where that is."""

BUCKET = 2**28
"""Bytes of weights that are handed over at once."""

log = logging.getLogger(__name__)


def settings() -> dict[str, Any]:
    """Return what vLLM is started with so that it takes weights from this process.

    Nothing where its weight transfer API isn't there, or has no engines that keep a whole update.
    """
    transfer: Any = None
    with suppress(ImportError):
        transfer = import_module("vllm.distributed.weight_transfer")
    if not hasattr(getattr(transfer, "WeightTransferEngine", None), "finish_weight_update"):
        log.warning("this vLLM doesn't take weights in buckets: it reloads all at once")
        return {}
    register(transfer.WeightTransferEngineFactory)
    return {"weight_transfer_config": {"backend": BACKEND}}


@cache
def register(factory: Any) -> None:
    """Let vLLM know what takes weights, once in a process."""
    factory.register_engine(BACKEND, RECEIVER, "Receiver")


class WeightTransfer:
    """How one vLLM is given new weights.

    Args:
        llm: vLLM's, started with `settings`.

    Attributes:
        whole: whether it has all weights of one version.
    """

    def __init__(self, llm: Any) -> None:
        self.llm, self.whole = llm, True

    def take(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Give it all weights, whole ones by transformers' names; each is read once, in order.

        Raises:
            EngineError: it failed between the first and the last, and can't be used any more.
        """
        self.check()
        self.whole = False
        try:
            self._send(weights)
        except Exception as error:
            if lacks_memory(error):
                raise
            raise EngineError(
                f"vLLM failed while it loaded new weights: {error}",
                hint="start the run again; if it knows a weight by another name, take "
                'engine = "hf"',
            ) from error
        self.whole = True

    def check(self) -> None:
        """Raise EngineError if it has some weights of one version and some of another."""
        if not self.whole:
            raise EngineError(
                "vLLM failed earlier while it loaded new weights", hint="start the run again"
            )

    def _send(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        if self.llm.llm_engine.vllm_config.weight_transfer_config is None:
            self.llm.apply_model(unpack_experts)
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
            self.llm.apply_model(repack_tied)
            return
        self.llm.start_weight_update()
        receiver = import_module(RECEIVER).Receiver
        receiver.trainer_send_weights(weights, self.llm.update_weights)
        self.llm.finish_weight_update()


def buckets(
    weights: Iterable[tuple[str, Tensor]], least: int = BUCKET
) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield weights in their order, some at a time; the next are made when these have been taken.

    Args:
        weights: by name.
        least: bytes with which a bucket is full; the last one may have fewer.
    """
    bucket: list[tuple[str, Tensor]] = []
    for name, tensor in weights:
        bucket.append((name, tensor))
        if sum(x.nbytes for _, x in bucket) >= least:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
