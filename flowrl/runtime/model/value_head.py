"""A value head beside the head of a language model: a policy that is its own critic."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flowrl.errors import EngineError

NAME = "value_head"
FILE = f"{NAME}.safetensors"


def add_value_head(model: Any, folder: Path) -> bool:
    """Put a linear layer, hidden state to one number, where the model's own head reads.

    Args:
        model: a language model of transformers.
        folder: may hold a value head, as `save_model` writes it; else it starts at zero.

    Returns:
        Whether the folder had one.

    Raises:
        EngineError: it has one of another model.
    """
    own = model.get_output_embeddings().weight
    head = nn.Linear(own.shape[-1], 1, device=own.device, dtype=own.dtype)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    saved = has_value_head(folder)
    if saved:
        head.load_state_dict(_read(folder / FILE, head))
    model.add_module(NAME, head)
    return saved


def has_value_head(folder: Path) -> bool:
    """Whether a folder has a value head in its own file."""
    return (folder / FILE).is_file()


def _read(file: Path, head: nn.Module) -> dict[str, Tensor]:
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        hint = "save the model again, or remove the file: the head then starts at zero"
        raise EngineError(f"`{file}` holds no tensors: {error}", hint=hint) from error
    found, needed = _shapes(tensors), _shapes(head.state_dict())
    if found != needed:
        raise EngineError(
            f"`{file}` holds {found}; the value head of this model needs {needed}",
            hint="it belongs to another model: remove it, and the head starts at zero",
        )
    return tensors


def _shapes(tensors: Mapping[str, Tensor]) -> str:
    shown = (f"{name} {list(tensor.shape)}" for name, tensor in sorted(tensors.items()))
    return ", ".join(shown) or "nothing"


def without_value_head(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the language model alone."""
    return {name: x for name, x in weights.items() if not name.startswith(f"{NAME}.")}


def save_model(model: Any, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a folder that transformers' `from_pretrained` loads, the value head in its own file.

    Args:
        model: says what kind it is.
        folder: made if it does not exist.
        weights: of the model and its value head, all of one dtype.
    """
    model.should_save_on_this_rank = bool  # transformers writes nothing on others than rank 0
    model.save_pretrained(folder, state_dict=without_value_head(weights))
    config = deepcopy(model.config)
    config.dtype = next(iter(weights.values())).dtype
    config.save_pretrained(folder)
    head = {n.removeprefix(f"{NAME}."): x for n, x in weights.items() if n.startswith(f"{NAME}.")}
    if head:
        save_file(head, folder / FILE)
