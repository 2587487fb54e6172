"""Checkpoints: a folder a model that transformers loads, and where the run stood."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrl.runtime.host import Host
from flowrl.runtime.rows import Cursor
from flowrl.train.folder import writing

STATE = "state.json"
"""Where the run stood."""


def save_checkpoint(
    folder: Path,
    step: int,
    host: Host,
    tokenizers: Mapping[str, Any],
    carried: Mapping[str, Any],
    cursors: Mapping[str, Cursor],
) -> None:
    """Write the trained models, the carried values and the place in the data.

    The folder appears whole or not at all.

    Args:
        folder: of the checkpoint, which isn't there yet; each trained role gets a folder inside,
            with its tokenizer.
        step: how many steps are done.
        host: has the models.
        tokenizers: by role.
        carried: the values of `fl.Carry` arguments after that step, by name.
        cursors: the place in the data of each input.

    Raises:
        RunFileError: it can't be written.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    trained = {r: m for r, m in host.models.items() if hasattr(m.engine, "update")}
    state = {
        "step": step,
        "versions": {role: model.version for role, model in trained.items()},
        "carry": dict(carried),
        "data": {name: cursor.position for name, cursor in cursors.items()},
    }
    try:
        with writing(folder):
            draft.mkdir()
            for role, model in trained.items():
                (draft / role).mkdir()
                model.engine.save(str(draft / role))  # type: ignore[attr-defined]
                tokenizers[role].save_pretrained(draft / role)
            (draft / STATE).write_text(json.dumps(state, indent=1))
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
