"""The folders of a run's models, held against what the run does with them, before it starts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.run_file import RunFile
from flowrl.data.tokenizer import check_ids, load_tokenizer
from flowrl.errors import DataError, EngineError
from flowrl.ir.graph import Graph
from flowrl.ops.uses import Uses, uses_of
from flowrl.runtime.model.models import check_model
from flowrl.train.prepare import of_model, role_setup

FEW = 2
"""How many times as many tokens as its tokenizer a model may have; more are no padding."""


def check_folders(run: RunFile, graph: Graph) -> list[str]:
    """Check the folders of models that are here; return a sentence for each that is odd.

    Configs, tokenizers, and the names and shapes of weights are read, no numbers.

    Args:
        run: the run file.
        graph: its program, after `simplify`: models that nothing reads are left out.

    Raises:
        EngineError: a folder holds no model, or another one than the program reads.
        DataError: it has no tokenizer, or one with tokens that the model has not.
    """
    return list(_findings(run, graph))


def _findings(run: RunFile, graph: Graph) -> Iterator[str]:
    tokenizers: dict[Path, Any] = {}
    for role, its in uses_of(graph).items():
        folder = run.resolve(run.roles[role].path)
        if not folder.exists():
            continue
        rows = _rows(run, graph, its)
        try:
            tokenizer = tokenizers.get(folder) or load_tokenizer(folder)
            check_ids(tokenizer, rows)
        except DataError as error:
            raise of_model(role, error, run) from error
        tokenizers[folder] = tokenizer
        if rows > FEW * len(tokenizer):
            yield (
                f"`{run.model_key(role)}`: the model has {rows:,} tokens, its tokenizer "
                f"{len(tokenizer):,}: samples may have tokens that are no text."
            )


def _rows(run: RunFile, graph: Graph, its: Uses) -> int:
    """Return the tokens of a model's vocabulary, once its folder is checked."""
    key, spec = run.model_key(its.role), role_setup(run, graph, its.role).model
    try:
        return check_model(attrs.evolve(spec, new_head=its.learns), its.head)
    except EngineError as error:
        problem = f"`{key}`: {error.problem}"
        raise EngineError(problem, where=run.where(key), hint=error.hint) from error
