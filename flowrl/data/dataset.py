"""Rows that were checked, and the order in which they are drawn."""

import random
from collections import Counter
from collections.abc import Sequence

import attrs
import torch

from flowrl.data.entry import Completion, Entry
from flowrl.data.record import RowError
from flowrl.data.spec import RowKind
from flowrl.data.user import Sampler
from flowrl.errors import DataError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.rows.rows import Batch, ExampleBatch, PairBatch, PromptBatch

SHOWN = 3
"""How many of the rows skipped for one reason `sentence` names."""


@attrs.frozen(eq=False)
class Dataset:
    """The rows that a run draws from, in memory.

    Attributes:
        source: the source's name, for messages.
        kind: what a batch is.
        entries: the rows that are left, in the order of the source.
        skips: why each other row is not among them.
        seed: of the order.
        shuffle: whether epochs have an order of their own.
        sampler: the user's order instead, and its name; see `DataSpec.sampler`.
        epochs: how often each row may be drawn; None for no end.
    """

    source: str
    kind: RowKind
    entries: tuple[Entry, ...]
    skips: tuple[RowError, ...]
    seed: int
    shuffle: bool
    epochs: int | None
    sampler: tuple[str, Sampler] | None = None

    @property
    def rows(self) -> int:
        """The number of rows in an epoch."""
        return len(self.entries)

    @property
    def skipped(self) -> dict[str, int]:
        """The number of rows left out, by reason."""
        return dict(Counter(skip.reason for skip in self.skips))

    def sentence(self) -> str:
        """Return one line: the rows kept, and which were skipped and why."""
        parts = [
            f"{count} {reason} ({self._places(reason)})" for reason, count in self.skipped.items()
        ]
        kept = f"{self.source}: {self.rows} {'row' if self.rows == 1 else 'rows'}"
        return f"{kept}, {len(self.skips)} skipped: {', '.join(parts)}" if parts else kept

    def _places(self, reason: str) -> str:
        places = [skip.where for skip in self.skips if skip.reason == reason]
        return ", ".join(places[:SHOWN]) + (", ..." if len(places) > SHOWN else "")

    def order(self, epoch: int) -> Sequence[int]:
        """Return the indices of `entries` as an epoch draws them: each once, without a sampler.

        Raises:
            DataError: the sampler's indices are not as many as the rows, or out of range.
        """
        if self.sampler is not None:
            return self._sampled(*self.sampler, epoch)
        if not self.shuffle:
            return range(self.rows)
        draw = random.Random(f"{self.seed}/{epoch}").random  # documented to stay the same
        keys = [draw() for _ in self.entries]
        return sorted(range(self.rows), key=keys.__getitem__)

    def _sampled(self, name: str, sampler: Sampler, epoch: int) -> Sequence[int]:
        order = list(sampler([entry.row for entry in self.entries], epoch, self.seed))
        wrong = [index for index in order if index not in range(self.rows)]
        if wrong or len(order) != self.rows:
            came = f"{wrong[0]!r} among them" if wrong else f"{len(order)} of them"
            raise DataError(
                f"the sampler must give {self.rows} indices from 0 to {self.rows - 1}; got {came}",
                where=f"{name}, epoch {epoch}",
            )
        return order

    def check_prompts(self, most: int, why: str) -> None:
        """Refuse a prompt that the engine which samples has no room for.

        Args:
            most: tokens of a prompt.
            why: what says so.

        Raises:
            DataError: naming the first row with a longer one.
        """
        for entry in self.entries:
            if len(entry.context) > most:
                raise DataError(
                    f"the prompt has {len(entry.context)} tokens; {why}",
                    where=f"  {entry.row.where}",
                    hint=f"raise it, or set `max_prompt_tokens = {most}` and `on_long_prompt` to "
                    '"skip" or "truncate_left"',
                )

    def cursor(self, position: int = 0) -> "DataCursor":
        """Return a place in the data, `position` rows after the start."""
        return DataCursor(self, position)


@attrs.define(eq=False)
class DataCursor:
    """A place in a data set; see `flowrl.runtime.rows.rows.Cursor`."""

    dataset: Dataset
    position: int = 0
    _epoch: int = attrs.field(default=-1, init=False)
    _order: Sequence[int] = attrs.field(factory=list, init=False)

    def take(self, count: int) -> Batch:
        """Return the next `count` rows, over the end of an epoch if need be.

        Raises:
            DataError: fewer rows are left; none is drawn.
        """
        rows, epochs = self.dataset.rows, self.dataset.epochs
        if epochs is not None and self.position + count > rows * epochs:
            left = max(0, rows * epochs - self.position)
            raise DataError(
                f"{count} rows were asked for, and {left} are left of {epochs} epochs "
                f"of {rows} rows",
                where=self.dataset.source,
                hint="raise `epochs`, leave it out to go on for ever, or train fewer steps",
            )
        drawn = [self._at(self.position + index) for index in range(count)]
        self.position += count
        return collate(self.dataset.kind, drawn)

    def _at(self, position: int) -> Entry:
        epoch, index = divmod(position, self.dataset.rows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self.dataset.order(epoch)
        return self.dataset.entries[self._order[index]]


def collate(kind: RowKind, entries: Sequence[Entry]) -> Batch:
    """Pack entries into a batch; nothing is padded."""
    rows = tuple(entry.row for entry in entries)
    context = Ragged.of_rows([entry.context for entry in entries], torch.int64)
    completions = [completion for entry in entries for completion in entry.completions]
    if kind == "prompts":
        return PromptBatch(rows, context)
    tokens, mask = _packed(completions)
    if kind == "examples":
        return ExampleBatch(rows, context, tokens, mask)
    samples = torch.full((len(rows),), 2)
    return PairBatch(
        rows,
        context,
        Ragged(tokens.values, (samples, *tokens.lengths)),
        Ragged(mask.values, (samples, *mask.lengths)),
    )


def _packed(completions: Sequence[Completion]) -> tuple[Ragged, Ragged]:
    tokens = Ragged.of_rows([completion.tokens for completion in completions], torch.int64)
    mask = Ragged.of_rows([completion.mask for completion in completions], torch.bool)
    return tokens, mask
