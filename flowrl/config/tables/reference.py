"""`docs/run_file.md`: every table and key of a run file, from the classes that check it."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.config.tables.headers import all_tables, keys_of
from flowrl.config.toml.types import as_toml, describe

INTRODUCTION = """\
# The run file

`flowrl run FILE` reads one TOML file. An unknown key, a wrong type or keys that contradict each
other are errors that name the key, its line and what would be right, before anything starts.
[extending.md](extending.md#an-algorithm) has a whole one; `examples/` has more, and
[runtime.md](runtime.md#what-a-run-leaves) says what a run leaves.

- `--set a.b=value` replaces or adds a key: `--set train.steps=10`. A value that isn't TOML is a
  string.
- Relative paths start at the run file's folder.
- `<role>` is the name of a model in the program; `<pool>`, `<function>`, `<server>` and `<model>`
  are names of your choice.
- Keys in `[optimizer]` hold for every role, keys in `[optimizer.<role>]` for one. `[eval.data]`
  has those of `[data]` wherever it has none of its own. A program with several data inputs has
  a table `[data.<input>]` for each.

Four numbers count sequences and tokens; a sentence at the start of a run says what they come to.

| what | where |
| --- | --- |
| prompts a step | `train.prompts_per_step` |
| samples a prompt | `samples`, a hyperparameter in `[program]` |
| sequences a minibatch | `minibatch`, a hyperparameter in `[program]` of those that have updates |
| tokens a microbatch | `engines.<role>.train.tokens_per_microbatch` |
"""


def reference(classes: Mapping[str, type]) -> str:
    """Return the reference as Markdown.

    Args:
        classes: the class behind a table that this package leaves open, by its header:
            `data`, `reward.<function>`, `reward.<server>`.
    """
    sections = [_section(header, cls) for header, cls in all_tables(classes)]
    return "\n".join([INTRODUCTION, *sections])


def _section(header: str, cls: type) -> str:
    meanings = _meanings(cls)
    rows = [
        f"| `{field.name}` | {_cell(describe(field.type))} | {_default(field)} "
        f"| {_cell(meanings[field.name])} |"
        for field in keys_of(cls)
    ]
    table = ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows]
    about = inspect.cleandoc(cls.__doc__ or "")
    return "\n".join([f"## [{header}]", "", about, "", *([*table, ""] if rows else [])])


def _default(field: "attrs.Attribute[Any]") -> str:
    default: Any = field.default
    if default is attrs.NOTHING:
        return "required"
    if default is None:
        return ""
    made = default.factory() if hasattr(default, "factory") else default
    return "`{}`" if made == {} else f"`{as_toml(made)}`"


def _meanings(cls: type) -> dict[str, str]:
    """Return the text below each field of a class and of those that it extends."""
    meanings: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not attrs.has(each):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(meaning))
                ):
                    meanings[name] = inspect.cleandoc(meaning)
    return meanings


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
