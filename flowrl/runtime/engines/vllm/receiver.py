"""What takes weights inside of vLLM: an engine of its weight transfer API.

vLLM's factory alone imports this file, by the name under which `transfer` has registered it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs
from torch import Tensor
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.transfer import buckets
from flowrl.runtime.engines.vllm.weights import repack_tied, unpack_experts


@attrs.frozen
class Bucket:
    """Whole weights, by transformers' names; of ranks, what is not theirs is never read."""

    weights: list[tuple[str, Tensor]]


class Receiver(WeightTransferEngine):  # type: ignore[misc]
    """Has vLLM's own loaders put weights of this process into its tensors, layer by layer.

    A layer whose last weight has come is processed as after the first load, packed for a CPU for
    one, and copied into the tensors that it computes with.
    """

    init_info_cls = WeightTransferInitInfo
    update_info_cls = Bucket

    def init_transfer_engine(self, init_info: WeightTransferInitInfo) -> None:
        """Both ends are in this process: nothing has to meet."""

    def start_weight_update(self) -> None:
        """Have layers wait for weights as a checkpoint has them."""
        self.missing = {name for name, _ in self.model.named_parameters()}
        unpack_experts(self.model)
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load a bucket; what samples comes behind it on the same stream, so nothing is awaited."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Bucket) -> None:
        """Load a bucket; models that don't say what they have loaded are taken to have all."""
        loaded = self.model.load_weights(update_info.weights)
        self.missing -= self.missing if loaded is None else loaded

    def finish_weight_update(self) -> None:
        """Process what is left, padded layers for one, and the head that is tied.

        Raises:
            EngineError: vLLM has left weights of its own as they were.
        """
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied(self.model)
        if self.missing:
            raise EngineError(f"vLLM was given nothing for {sorted(self.missing)}")

    def shutdown(self) -> None:
        """Nothing was opened."""

    @staticmethod
    def trainer_send_weights(
        iterator: Iterable[tuple[str, Tensor]], trainer_args: Callable[[dict[str, Any]], None]
    ) -> None:
        """Hand weights over in buckets, each made when the one before has been loaded.

        Args:
            iterator: weights by name.
            trainer_args: vLLM's `update_weights`.
        """
        for bucket in buckets(iterator):
            trainer_args({"update_info": {"weights": bucket}})
            del bucket  # before the next is made
