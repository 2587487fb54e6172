"""Checkpoints: a folder a model that transformers loads, and where the run stood."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrl.runtime.executor import Executor
from flowrl.runtime.graph.carry import Carry
from flowrl.train.folder import writing

STATE = "state.json"
"""Where the run stood."""


def save_checkpoint(
    folder: Path,
    step: int,
    executor: Executor,
    tokenizers: Mapping[str, Any],
    carried: Carry,
    cursors: Mapping[str, Any],
) -> None:
    """Write the trained models, what is carried, and the place in the data.

    The folder appears whole or not at all.

    Args:
        folder: of the checkpoint, which isn't there yet; each trained role gets a folder inside,
            with its tokenizer.
        step: how many steps are done.
        executor: has the models.
        tokenizers: by role.
        carried: the values of `fl.Carry` arguments after that step, by name; the rows of a
            buffer get a file, which stands for them among the other values.
        cursors: the place in the data of each input.

    Raises:
        RunFileError: it can't be written.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        with writing(folder):
            draft.mkdir()
            versions = executor.save(str(draft))
            files = {name: f"{name}.pt" for name in executor.save_rows(str(draft), carried)}
            for role in versions:
                tokenizers[role].save_pretrained(draft / role)
            state = {
                "step": step,
                "versions": versions,
                "carry": {**carried, **files},
                "data": {name: cursor.position for name, cursor in cursors.items()},
            }
            (draft / STATE).write_text(json.dumps(state, indent=1))
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
