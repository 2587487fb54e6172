"""Find the program in a file."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from flowrl.errors import ProgramError, nearest
from flowrl.ir.program import Program
from flowrl.user_file import import_file, locating

BUILTIN = "programs"
"""The package of the programs that come with flowrl."""


def load_program(given: str | Path, name: str | None = None) -> Program:
    """Import a program.

    Args:
        given: `path.py`, `path.py:name`, or the name of a program that comes with flowrl, such
            as `grpo`. A relative path starts at the working directory.
        name: the function with `@fl.program`; needed only if the file has several.

    Raises:
        ProgramError: there is no such file or program, the file has none or several, or running
            it raises.
    """
    file, colon, function = str(given).rpartition(":")
    if colon and file.endswith(".py"):
        given, name = file, function
    path = program_file(str(given))
    with locating(path):
        module = _imported(path)
    return _choose(module, path, name)


def builtin_programs() -> dict[str, Path]:
    """Return the files of the programs that come with flowrl, by name."""
    spec = importlib.util.find_spec(BUILTIN)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder).glob("[!_]*.py")]
    return {file.stem: file for file in sorted(files)}


def program_file(given: str, folder: Path = Path()) -> Path:
    """Return the file of a program.

    Args:
        given: a path that ends in .py, or the name of a program that comes with flowrl.
        folder: where a relative path starts.

    Raises:
        ProgramError: there is no such file or program.
    """
    known = builtin_programs()
    path = folder / Path(given).expanduser() if given.endswith(".py") else known.get(given)
    if path is not None and path.is_file():
        return path
    close = nearest(Path(given).stem, known)
    raise ProgramError(
        f"there is no file {path}{close}" if path else f"there is no program `{given}`{close}",
        hint=f"give a path that ends in .py, or one of {', '.join(known)}",
    )


def _imported(path: Path) -> ModuleType:
    """Import a program's file; one that comes with flowrl is a module of its package."""
    path = path.resolve()
    if builtin_programs().get(path.stem, Path()).resolve() == path:
        return importlib.import_module(f"{BUILTIN}.{path.stem}")
    return import_file(path)


def _choose(module: ModuleType, path: Path, name: str | None) -> Program:
    found = {key: each for key, each in vars(module).items() if isinstance(each, Program)}
    if name is not None:
        if name in found:
            return found[name]
        raise ProgramError(
            f"{path.name} has no program `{name}`{nearest(name, found)}",
            where=f"  {path}",
            hint=f"it has {', '.join(found)}" if found else "decorate a function: `@fl.program`",
        )
    own = [p for p in found.values() if p.function.__module__ == module.__name__]
    own = own or list(found.values())
    if len(own) == 1:
        return own[0]
    if not own:
        raise ProgramError(
            f"{path.name} has no program",
            where=f"  {path}",
            hint="decorate the function of models and data: `@fl.program`",
        )
    names = ", ".join(program.name for program in own)
    raise ProgramError(
        f"{path.name} has several programs: {names}",
        where=f"  {path}",
        hint=f"choose one: `{path.name}:{own[0].name}`, or `name` of [program] in a run file",
    )
