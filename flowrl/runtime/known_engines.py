"""The engines that there are, by name; none is imported."""

from collections.abc import Mapping

GENERATORS = {
    "hf": "flowrl.runtime.engines.hf:HFGenerator",
    "vllm": "flowrl.runtime.engines.vllm:VLLMGenerator",
}
SCORERS = {"torch": "flowrl.runtime.engines.torch_scorer:TorchScorer"}
TRAINERS = {"torch": "flowrl.runtime.engines.torch:TorchTrainer"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "generate": GENERATORS,
    "score": SCORERS,
    "train": TRAINERS,
}
"""Engines by use and name. A new engine is a file and a line here."""
