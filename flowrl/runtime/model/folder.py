"""What is in a model's folder: its config, and the names and shapes of its weights; no numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from flowrl.errors import EngineError

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
FOLDER = "give a folder with config.json and safetensors, as `save_pretrained` writes it"
AGAIN = "save the model again, or copy the folder again: it was not written to its end"
SHOWN = 5
"""Names of a folder that a message lists."""


def check_config(folder: Path) -> None:
    """Check that a folder has a config that can be read, of some type of model.

    Raises:
        EngineError: it is no folder, or has none.
    """
    file = folder / CONFIG
    if not folder.is_dir():
        what = f"expected a folder; `{folder}` is a file" if folder.exists() else None
        raise EngineError(what or f"`{folder}` is not a folder", hint=FOLDER)
    if not file.is_file():
        inside = [f"`{each.parent}`" for each in sorted(folder.glob(f"*/{CONFIG}"))]
        hint = f"a model is in {' and in '.join(inside)}" if inside else FOLDER
        raise EngineError(f"`{folder}` has no {CONFIG}: {_listed(folder)}", hint=hint)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"`{file}` cannot be read: {error}", hint=FOLDER) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        got = f"the keys {', '.join(config) or '(none)'}" if isinstance(config, dict) else config
        raise EngineError(f"`{file}` names no `model_type`: got {got}", hint=FOLDER)


def saved_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a folder without storage, by the names that they have in its files.

    Raises:
        EngineError: it has no weights, lacks a file of them, or one can't be read to its end.
    """
    saved: dict[str, Tensor] = {}
    for file in _files(folder):
        try:
            saved |= _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)
        except Exception as error:  # a pickle that is none makes torch raise anything
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise EngineError(f"`{file}` holds no tensors: {reason}", hint=AGAIN) from error
    return saved


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files with a folder's weights, as transformers looks for them."""
    for name in WEIGHTS:
        whole, index = folder / name, folder / f"{name}.index.json"
        if whole.is_file():
            yield whole
            return
        if index.is_file():
            yield from _shards(index)
            return
    expected = f"expected {' or '.join(WEIGHTS)}, whole or with an index"
    raise EngineError(f"`{folder}` has no weights: {expected}; {_listed(folder)}", hint=FOLDER)


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineError(f"`{index}` is not an index of weights: {error!r}", hint=AGAIN) from error
    files = [index.parent / str(name) for name in names]
    lacking = [file.name for file in files if not file.is_file()]
    if lacking:
        raise EngineError(
            f"`{index.parent}` lacks {len(lacking)} of the {len(files)} files that {index.name} "
            f"names, first `{lacking[0]}`",
            hint=AGAIN,
        )
    return files


def _safetensors(file: Path) -> dict[str, Tensor]:
    with safe_open(file, "pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {n: torch.empty(its.get_shape(), device="meta") for n, its in slices.items()}


def _pickled(file: Path) -> dict[str, Tensor]:
    saved: Any = torch.load(file, map_location="meta", weights_only=True)
    return dict(saved)


def _listed(folder: Path) -> str:
    """Return in words what is in a folder."""
    names = sorted(each.name for each in folder.iterdir())
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"it holds {', '.join(names[:SHOWN])}{more}" if names else "it is empty"
