"""The shapes of a run's models, before any is loaded."""

from pathlib import Path

from flowrl.compiler.shapes import ModelShape, known_shape
from flowrl.config.run_file import RunFile
from flowrl.errors import EngineError
from flowrl.ops.model import Head


def shape_of(run: RunFile, role: str) -> ModelShape | None:
    """Return the parameters of a role's language model; None if the planner can't know them."""
    if role not in run.roles:
        return None
    folder = run.model_folder(role)
    try:
        return shape_at(str(folder) if folder.exists() else run.roles[role].path)
    except EngineError:
        return None


def shape_at(path: str, head: Head = "lm") -> ModelShape:
    """Return the parameters of a model: in a folder, in the hub's cache, or well-known.

    Args:
        path: a folder, or a name on the hub.
        head: that it is loaded with.

    Raises:
        EngineError: it is in none of these, or of a family that the planner doesn't know.
    """
    folder = Path(path) if Path(path).exists() else _cached(path)
    return ModelShape.from_folder(folder, head) if folder else known_shape(path, head)


def _cached(name: str) -> Path | None:
    """Return the folder in the user's cache of the hub that has a model's config."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None
