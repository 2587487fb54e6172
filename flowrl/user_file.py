"""Files of Python that users write: import one, and say which of its lines failed."""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from os.path import isfile
from pathlib import Path
from types import ModuleType

from flowrl.errors import PACKAGE, FlowrlError, Location, ProgramError, nearest


def import_file(path: Path, name: str | None = None) -> ModuleType:
    """Run a file as a module that can import its neighbours.

    Args:
        path: ends in .py.
        name: of the module in `sys.modules`; the path if not given.

    Raises:
        BaseException: what the file raises; `sys.modules` has it no more then.
    """
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end: it must hide no installed package
    spec = importlib.util.spec_from_file_location(name or str(path), path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None, "the name ends in .py"
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


@contextmanager
def locating(path: Path, kind: type[FlowrlError] = ProgramError) -> Iterator[None]:
    """Turn a Python error that a user's file raises inside into one that names its line.

    Raises:
        FlowrlError: of that kind, whatever was raised; a FlowrlError stays as it is.
    """
    try:
        yield
    except (FlowrlError, KeyboardInterrupt):
        raise
    except BaseException as error:  # `sys.exit(0)` would end a run as if it were done
        last = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, GeneratorExit) and last.filename.startswith(PACKAGE):
            raise  # it closes what yields inside
        problem = f"running {path.name} raised {_described(error)}"
        raise kind(problem, where=_raised_at(error, path)) from error


def described(error: BaseException) -> str:
    """Return the class and text of an error as a traceback ends with them."""
    told = traceback.TracebackException(type(error), error, None, compact=True)
    vars(told).update(filename=None, lineno=None, text=None)  # a syntax error's, whatever they are
    return "".join(told.format_exception_only()).strip()


def syntax_place(error: BaseException) -> str:
    """Return an excerpt of what can't be parsed; "" if that is no file, or the error another."""
    match error:
        case SyntaxError(
            filename=str(file), lineno=int(line), offset=int(offset), end_offset=int() | None as end
        ) if isfile(file):  # and not what `eval` is given, or any text that `compile` was
            start = max(offset - 1, 0)
            return Location(file, line, start, max((end or 0) - 1, start + 1)).excerpt()
    return ""


def _described(error: BaseException) -> str:
    """Return the class and text of an error, and the attribute that may have been meant."""
    if isinstance(error, AttributeError) and isinstance(error.name, str):
        return f"AttributeError: {error}{nearest(error.name, dir(error.obj))}"
    return described(error)


def _raised_at(error: BaseException, path: Path) -> str:
    """Return an excerpt of the innermost line of the file that the error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve() == path.resolve()]
    passed = Location.of_frame(own[-1]).excerpt() if own else f"  {path}"
    return syntax_place(error) or passed
