"""Messages and docstrings name only functions that exist."""

import ast
import re
from pathlib import Path

import pytest

import flowrl as fl

ROOT = Path(fl.__file__).parent
FILES = [
    ROOT / "errors.py",
    *(f for d in ("ir", "ops", "compiler") for f in (ROOT / d).glob("*.py")),
]
NAMED = re.compile(r"\b(fl|ops)\.([a-z]\w*|[A-Z]\w*)")


def named_in(file):
    """Return what the texts of a file call `fl.x` and `ops.x`."""
    texts = [n.value for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Constant)]
    return {match for text in texts if isinstance(text, str) for match in NAMED.findall(text)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_function_that_a_text_names_exists(file):
    missing = [
        f"{module}.{name}"
        for module, name in named_in(file)
        if not hasattr(fl if module == "fl" else fl.ops, name)
    ]

    assert missing == []


def test_the_texts_are_found():
    assert ("ops", "snapshot") in named_in(ROOT / "ir" / "builder.py")
