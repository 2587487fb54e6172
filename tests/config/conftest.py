"""A run file in a folder of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flowrl.compiler.cluster import Cluster
from flowrl.config import RunFile, load_run_file
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError

GRPO = """\
[program]
file = "grpo"
samples = 4

[models.policy]
path = "model"

[models.reference]
path = "model"

[data]
source = "train.jsonl"

[reward]
exact = "reward.py:exact"

[train]
steps = 100
prompts_per_step = 6
"""
QWEN = GRPO.replace('path = "model"', 'path = "Qwen/Qwen2.5-3B"\ndtype = "bfloat16"')
QWEN = QWEN.replace("exact =", "reward =")
"""The same with a model that the planner knows."""


def pools_of(run: RunFile) -> Cluster:
    """Return the pools that a run file's program is run on."""
    return cluster_of(run, trace_run(run).graph)


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., RunFile]:
    """Load GRPO with lines added at its end and sets."""

    def load_with(added: str = "", *sets: str, text: str = GRPO) -> RunFile:
        file = tmp_path / "run.toml"
        file.write_text(text + added)
        return load_run_file(file, sets)

    return load_with


@pytest.fixture
def error_of(load: Callable[..., RunFile]) -> Callable[..., str]:
    """Return the text of the error that a run file ends in."""

    def text_of(added: str = "", *sets: str, text: str = GRPO) -> str:
        with pytest.raises(RunFileError) as caught:
            load(added, *sets, text=text)
        return str(caught.value)

    return text_of
