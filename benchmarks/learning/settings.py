"""What each program of the learning benchmark is run with: `<program>.toml`."""

import tomllib
from pathlib import Path
from typing import Any

import attrs
import tomlkit

FOLDER = Path(__file__).parent


@attrs.frozen
class Settings:
    """The file of one program: what is expected of it, and its run file.

    Attributes:
        program: its name.
        run: the tables of its run file.
        margin: how much more than its start `measure` shall be; what it is of is said beside it.
        why_not: why it isn't run, if it isn't.
        after: a program whose result it needs.
        measure: a metric: of the evaluation, or of the steps since the last reading.
        start: what `measure` is before training, where the first reading can't say.
        alone: nothing of `shared.toml` is under its tables.
    """

    program: str
    run: dict[str, Any]
    margin: float = 0.0
    why_not: str = ""
    after: str = ""
    measure: str = "eval/reward"
    start: float | None = None
    alone: bool = False

    @classmethod
    def read(cls, program: str) -> "Settings":
        """Read the file of a program: its own keys, then tables of a run file."""
        given = tomllib.loads((FOLDER / f"{program}.toml").read_text(encoding="utf-8"))
        own = {name: given.pop(name) for name in list(given) if not isinstance(given[name], dict)}
        tables = given if own.get("alone") else over(shared(), given)
        fixed = {"program": {"file": program}, "train": {"folder": program}}
        return cls(program, over(tables, {**fixed, "log": {"tensorboard": False}}), **own)

    def as_text(self) -> str:
        """Return the run file."""
        return tomlkit.dumps(self.run)


def shared() -> dict[str, Any]:
    """Return the tables that every program is run with."""
    return tomllib.loads((FOLDER / "shared.toml").read_text(encoding="utf-8"))


def over(under: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Return tables with others laid over them, key by key."""
    merged = dict(under)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(under.get(key), dict)
        merged[key] = over(under[key], value) if both else value
    return merged
