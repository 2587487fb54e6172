"""Faults of a worker's generators: what makes them is called there, and so is what ends them."""

import pytest
import torch

from flowrl.runtime.engines.hf import HFGenerator

PATCH = pytest.MonkeyPatch()
"""Of this process."""


def mended():
    """End all faults."""
    PATCH.undo()


def full():
    """Let the GPU of `hf` be full whenever it samples."""

    def fail(self, requests, sampling):
        raise torch.OutOfMemoryError("CUDA out of memory. If reserved but unallocated memory")

    PATCH.setattr(HFGenerator, "generate", fail)


def altered():
    """Alter one number of `hf`'s tensors before it samples with version 1."""
    generate = HFGenerator.generate

    def after(self, requests, sampling):
        if self.version == 1:
            self.held()["model.norm.weight"][3] *= 1.01
        return generate(self, requests, sampling)

    PATCH.setattr(HFGenerator, "generate", after)


def altered_in_vllm():
    """Alter one number of vLLM's own tensors before it samples with version 1."""
    from flowrl.runtime.engines.vllm.generator import VLLMGenerator

    generate = VLLMGenerator.generate

    def alter(model):
        dict(model.named_parameters())["model.norm.weight"].data[3] *= 1.01

    def after(self, requests, sampling):
        if self.version == 1:
            self.llm.apply_model(alter)
        return generate(self, requests, sampling)

    PATCH.setattr(VLLMGenerator, "generate", after)


def altered_on_the_way():
    """Let one number be another one as vLLM takes version 1."""
    from flowrl.runtime.engines.vllm.transfer import WeightTransfer

    take, times = WeightTransfer.take, []

    def changed(name, tensor):
        if name != "model.norm.weight" or len(times) != 2:
            return tensor
        tensor = tensor.clone()
        tensor[3] *= 1.01
        return tensor

    def after(self, weights):
        times.append(None)
        take(self, ((name, changed(name, x)) for name, x in weights))

    PATCH.setattr(WeightTransfer, "take", after)


def stale_cache():
    """Let vLLM find what it has cached, whatever weights that was of."""
    from flowrl.runtime.engines.vllm.generator import VLLMGenerator

    PATCH.setattr(VLLMGenerator, "loads", property(lambda _: 0, lambda *_: None), raising=False)


def stale_adapter():
    """Let vLLM stay with the first adapter that it was given."""
    from flowrl.runtime.engines.vllm.adapter import Adapters

    load = Adapters.load
    PATCH.setattr(Adapters, "load", lambda self, new: None if self.now else load(self, new))


def unasked_adapter():
    """Let vLLM be asked for samples of the base."""
    from flowrl.runtime.engines.vllm.adapter import Adapters

    PATCH.setattr(Adapters, "ready", lambda self: None)
