"""Opening data: every row is read, checked and encoded once, before anything starts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from flowrl.data.dataset import Dataset
from flowrl.data.encoder import Encoder
from flowrl.data.entry import LONG_PROMPT, Entry, Preparer
from flowrl.data.reasoning import TASK
from flowrl.data.record import Record, RowError
from flowrl.data.select import DUPLICATE, EXCLUDED, carve, contents, distinct
from flowrl.data.sources import Source
from flowrl.data.spec import DataSpec, RowKind
from flowrl.data.template import template_columns
from flowrl.data.user import user_sampler
from flowrl.errors import DataError


def open_data(
    spec: DataSpec,
    kind: RowKind,
    tokenizer: Any,
    *,
    seed: int,
    folder: Path,
    needs: Mapping[str, str] = MappingProxyType({}),
) -> Dataset:
    """Read, check and encode the rows of a source.

    Args:
        spec: `[data]` of the run file.
        kind: what the program reads: prompts, examples or pairs.
        tokenizer: of the model that reads the prompts.
        seed: the run's, for specs without one.
        folder: where relative paths start.
        needs: columns that each row must have a value in, and what needs them: a reward.

    Returns:
        The data set; `sentence()` says what was left out.

    Raises:
        DataError: the source, a row (naming file and row) or a setting cannot be used, or no
            row is left.
    """
    spec = _with_source_columns(spec)
    templated = template_columns(spec.template) if spec.template is not None else frozenset()
    readers = dict.fromkeys(templated, "`template`") | dict(needs)
    preparer = Preparer(spec, Encoder.of(tokenizer), kind, readers)
    entries: list[Entry] = []
    skips: list[RowError] = []
    for record in _selected(spec, folder):
        try:
            entries.append(_prepared(record, preparer))
        except RowError as error:
            if not _skippable(error, spec):
                raise
            skips.append(error.with_traceback(None))  # its frames would keep the row alive
    data = Dataset(
        source=spec.source,
        kind=kind,
        entries=tuple(entries),
        skips=tuple(skips),
        seed=seed if spec.seed is None else spec.seed,
        shuffle=spec.shuffle,
        epochs=spec.epochs,
        sampler=None
        if spec.sampler is None
        else (spec.sampler, user_sampler(spec.sampler, folder)),
    )
    if not entries:
        raise DataError("no row is left", where=data.sentence())
    return data


def _with_source_columns(spec: DataSpec) -> DataSpec:
    """Set the columns of reasoning_gym where the run file does not."""
    if not spec.source.startswith(TASK):
        return spec
    default = DataSpec(spec.source)
    if spec.prompt_key == default.prompt_key:
        spec = attrs.evolve(spec, prompt_key="question")
    if spec.completion_key == default.completion_key:
        spec = attrs.evolve(spec, completion_key="answer")
    return spec


def _selected(spec: DataSpec, folder: Path) -> Iterator[Record | RowError]:
    source = Source.parse(spec.source, spec.options, spec.split, folder)
    records = source.records()
    if spec.unique_key is not None:
        records = distinct(records, spec.unique_key, _excluded(spec, source))
    return carve(records, spec.skip_rows, spec.limit)


def _excluded(spec: DataSpec, source: Source) -> frozenset[str]:
    """Return the contents that are excluded."""
    if spec.exclude is None or spec.unique_key is None:
        return frozenset()
    return contents(source.other(spec.exclude).records(), spec.unique_key)


def _prepared(record: Record | RowError, preparer: Preparer) -> Entry:
    if isinstance(record, RowError):
        raise record
    return preparer.entry(record)


def _skippable(error: RowError, spec: DataSpec) -> bool:
    if error.reason == LONG_PROMPT:
        return spec.on_long_prompt == "skip"
    return error.reason in (DUPLICATE, EXCLUDED) or spec.on_bad_row == "skip"
