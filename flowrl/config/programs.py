"""Find the program in a file."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from flowrl.errors import FlowrlError, Location, ProgramError, nearest
from flowrl.ir.program import Program

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
    path = _file(given)
    with locating(path):
        module = _imported(path)
    return _choose(module, path, name)


def builtin_programs() -> dict[str, Path]:
    """Return the files of the programs that come with flowrl, by name."""
    spec = importlib.util.find_spec(BUILTIN)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder).glob("[!_]*.py")]
    return {file.stem: file for file in sorted(files)}


@contextmanager
def locating(path: Path) -> Iterator[None]:
    """Turn a Python error that a user's file raises inside into one that names its line.

    Raises:
        ProgramError: an error was raised, whatever its type; a FlowrlError stays as it is.
    """
    try:
        yield
    except FlowrlError:
        raise
    except Exception as error:
        described = traceback.format_exception_only(error)[-1].strip()
        raise ProgramError(
            f"running {path.name} raised {described}", where=_raised_at(error, path)
        ) from error


def _file(given: str | Path) -> Path:
    known = builtin_programs()
    path = Path(given).expanduser() if str(given).endswith(".py") else known.get(str(given))
    if path is not None and path.is_file():
        return path
    close = nearest(Path(given).stem, known)
    raise ProgramError(
        f"there is no file {path}{close}" if path else f"there is no program `{given}`{close}",
        hint=f"give a path that ends in .py, or one of {', '.join(known)}",
    )


def _imported(path: Path) -> ModuleType:
    """Import a file as a module that can import its neighbours."""
    path = path.resolve()
    if builtin_programs().get(path.stem, Path()).resolve() == path:
        return importlib.import_module(f"{BUILTIN}.{path.stem}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end: it must hide no installed package
    spec = importlib.util.spec_from_file_location(str(path), path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None, "the name ends in .py"
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


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


def _raised_at(error: Exception, path: Path) -> str:
    """Return an excerpt of the innermost line of the file that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename:
        start = (error.offset or 1) - 1
        end = error.end_offset - 1 if error.end_offset and error.end_offset > 0 else 0
        return Location(error.filename, error.lineno or 1, start, max(end, start + 1)).excerpt()
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve() == path.resolve()]
    if not own or own[-1].lineno is None:
        return f"  {path}"
    at = own[-1]
    end = (at.end_colno if at.end_lineno == at.lineno else None) or 0  # 0: to the line's end
    return Location(at.filename, at.lineno or 1, at.colno or 0, end).excerpt()
