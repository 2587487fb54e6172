"""Checkpoints: a folder a model that transformers loads, and where the run stood."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrl.ir.program import Input, Kind
from flowrl.runtime.host import Host

STATE = "state.json"
"""Written last into the folder: a checkpoint without it isn't whole."""


def save_checkpoint(
    folder: Path,
    step: int,
    host: Host,
    tokenizers: Mapping[str, Any],
    inputs: tuple[Input, ...],
    carry: Mapping[str, Any],
    positions: Mapping[str, int],
) -> Path:
    """Write the trained models, the carried values and the place in the data.

    The folder appears whole or not at all; one that is there already is replaced.

    Args:
        folder: of the checkpoint; each trained role gets a folder inside, with its tokenizer.
        step: how many steps are done.
        host: has the models.
        tokenizers: by role.
        inputs: the program's arguments.
        carry: after that step.
        positions: rows drawn of each data input.

    Returns:
        The folder.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    trained = [role for role, resident in host.models.items() if hasattr(resident.engine, "update")]
    for role in trained:
        host.models[role].engine.save(str(draft / role))  # type: ignore[attr-defined]
        tokenizers[role].save_pretrained(draft / role)
    state = {
        "step": step,
        "versions": {role: host.models[role].version for role in trained},
        "carry": {spec.name: carry[spec.name] for spec in inputs if spec.kind is Kind.CARRY},
        "data": dict(positions),
    }
    (draft / STATE).write_text(json.dumps(state, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder
