"""A trainer's state in shards: each rank writes its own, any number of ranks reads them.

By torch's distributed checkpoint, which asks all ranks for a plan, and then none of them for a
tensor of another.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from flowrl.errors import EngineError
from flowrl.runtime.model.weights import check_weights, shapes_of, weights_of
from flowrl.runtime.ranks.ranks import Ranks

WEIGHTS, OPTIMIZER = "weights", "optimizer"
WHOLE = "give a folder that all ranks see and that `save_sharded` wrote to its end"


def save_state(folder: str, model: nn.Module, optimizer: Optimizer, ranks: Ranks) -> None:
    """Write weights and optimizer state; every rank must.

    Its `.metadata` comes last: a folder that has it is whole.

    Args:
        folder: made if it does not exist; one that all ranks see.
        model: each rank writes its chunks; of what several have whole, one writes it.
        optimizer: of the model's parameters.
        ranks: those that have the model.

    Raises:
        EngineError: the folder can't be written.
    """
    state = _state(model, optimizer, stepped=bool(optimizer.state))
    with _told(folder, "can't be written"):
        save(state, checkpoint_id=folder, **_among(ranks))


def load_state(folder: str, model: nn.Module, optimizer: Optimizer, ranks: Ranks) -> None:
    """Return to a state that was written, by as many ranks or others; every rank must.

    The weights change in place.

    Raises:
        EngineError: the folder holds no state, a part of one, or that of another model; nothing
            has changed.
    """
    with _told(folder, "holds no state in shards"):
        metadata = FileSystemReader(folder).read_metadata()
    saved = metadata.state_dict_metadata
    check_weights(model, _weights(saved), shapes_of(model))
    _check_files(Path(folder), metadata.storage_data.values())
    stepped = any(name.startswith(f"{OPTIMIZER}.") for name in saved)
    state = _state(model, optimizer, stepped)
    with _told(folder, "can't be read"):
        load(state, checkpoint_id=folder, **_among(ranks))
    if stepped:
        set_optimizer_state_dict(model, optimizer, state[OPTIMIZER])
    else:
        optimizer.state.clear()


def _state(model: nn.Module, optimizer: Optimizer, stepped: bool) -> dict[str, Any]:
    """Return what is written, or read into: an optimizer that took no step has no state."""
    weights = {WEIGHTS: weights_of(model)}
    return weights | ({OPTIMIZER: get_optimizer_state_dict(model, optimizer)} if stepped else {})


def _weights(saved: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return saved weights as tensors without content."""
    return {
        name.removeprefix(f"{WEIGHTS}."): torch.empty(of.size, device="meta")
        for name, of in saved.items()
        if name.startswith(f"{WEIGHTS}.") and isinstance(of, TensorStorageMetadata)
    }


def _check_files(folder: Path, parts: Iterable[Any]) -> None:
    """Refuse a folder without all of its files to their ends, before a number is read."""
    ends: dict[str, int] = {}
    for part in parts:
        ends[part.relative_path] = max(ends.get(part.relative_path, 0), part.offset + part.length)
    for name, end in sorted(ends.items()):
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size < end:
            raise EngineError(
                f"`{folder}` has {size} of {end} bytes of its file `{name}`", hint=WHOLE
            )


def _among(ranks: Ranks) -> dict[str, Any]:
    return {"process_group": ranks.group, "no_dist": ranks.count == 1}


@contextmanager
def _told(folder: str, what: str) -> Iterator[None]:
    """Tell what fails on any rank, which torch raises on all of them, as an error of the folder."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one rank alone
            yield
    except (CheckpointException, OSError) as error:
        failures = getattr(error, "failures", {0: (error, None)})
        reason = next(str(failure) for failure, _ in failures.values())
        raise EngineError(f"`{folder}` {what}: {reason}", hint=WHOLE) from error
