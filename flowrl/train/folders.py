"""The folders of a run's models, held against what the run does with them, before it starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.placement.used import evaluated_role, judges_of
from flowrl.config.run_file import RunFile
from flowrl.data.tokenizer import check_ids, load_tokenizer
from flowrl.errors import DataError, EngineError
from flowrl.ir.graph import Graph
from flowrl.ops.model import Generate
from flowrl.ops.uses import Uses, tokenizing_role, uses_of
from flowrl.runtime.model.models import check_model, outline
from flowrl.runtime.sampling.refusals import limits_of
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
        EngineError: a folder holds no model, or another one than the program reads, or one without
            positions for its completions or layers for its adapter.
        DataError: it has no tokenizer, or one with tokens that the model has not.
    """
    return list(_findings(run, graph))


def _findings(run: RunFile, graph: Graph) -> Iterator[str]:
    tokenizers: dict[Path, Any] = {}
    for role, its in (uses_of(graph) | judges_of(run, graph)).items():
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
    """Return the tokens of a model's vocabulary, once its folder and its adapter are checked."""
    spec = role_setup(run, graph, its.role).model
    with _told(run, run.model_key(its.role)):
        plain = attrs.evolve(spec, new_head=its.learns, lora=None)
        rows, positions = limits_of(check_model(plain, its.head))
    if spec.lora:
        with _told(run, f"models.{its.role}.lora.targets"):
            outline(spec)
    own = any(isinstance(n.op, Generate) and n.op.max_tokens is None for n in its.sampling)
    if own or its.role == evaluated_role(run, graph):
        _check_positions(run, graph, its.role, positions)
    return rows


def _check_positions(run: RunFile, graph: Graph, role: str, positions: float) -> None:
    """Refuse completions, or a length of vLLM's, that a model has no positions for."""
    generate, table = run.engines.role(role).generate, f"engines.{role}.generate"
    most = {f"{table}.max_tokens": generate.max_tokens + 1}  # a prompt has a token
    if generate.vllm and generate.vllm.max_model_len:
        most[f"{table}.vllm.max_model_len"] = generate.vllm.max_model_len
    if run.eval and run.eval.max_tokens and role == tokenizing_role(graph):
        most["eval.max_tokens"] = run.eval.max_tokens + 1
    for key, tokens in most.items():
        if tokens > positions:
            raise EngineError(
                f"`{key}` needs at least {tokens} positions for prompt and completion; the model "
                f"of `{role}` has {positions:g}",
                where=run.where(key, run.model_key(role)),
                hint="sample fewer tokens, or take a model with more positions",
            )


@contextmanager
def _told(run: RunFile, key: str) -> Iterator[None]:
    """Tell what is wrong with a model with the key that asks for it."""
    try:
        yield
    except EngineError as error:
        raise error.told(f"`{key}`: {error.problem}", where=run.where(key)) from error
