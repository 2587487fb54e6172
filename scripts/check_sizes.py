"""Fail on files over 400 lines and functions over 60; warn about files over 300.

A function's docstring is not counted.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("flowrl", "programs", "examples", "benchmarks", "scripts", "tests")
WARN_FILE, MAX_FILE, MAX_FUNCTION = 300, 400, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def body_lines(function: Function) -> int:
    """Count the lines of a function from its `def`, less its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def findings(source: str) -> Iterator[tuple[bool, int, str]]:
    """Yield `(fails, line, text)` for the file and each function that is too long."""
    lines = len(source.splitlines())
    if lines > WARN_FILE:
        yield lines > MAX_FILE, 1, f"{lines} lines in a file (at most {MAX_FILE})"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and body_lines(node) > MAX_FUNCTION:
            text = f"`{node.name}` has {body_lines(node)} lines (at most {MAX_FUNCTION})"
            yield True, node.lineno, text


def main(root: Path = ROOT) -> int:
    """Print every finding, and return 1 if one fails."""
    failed = 0
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        for fails, line, text in findings(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(root)}:{line}: {'error' if fails else 'warning'}: {text}")
            failed += fails
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
