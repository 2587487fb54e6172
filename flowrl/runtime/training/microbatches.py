"""Microbatches: rows of a batch that go through a model together."""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from flowrl.functional.lengths import as_many, balance, micro_batches
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Outputs, Sequences
from flowrl.runtime.model.attention import Packing
from flowrl.runtime.model.forward import PER_ROW
from flowrl.runtime.rows.places import children, take_rows


@attrs.frozen(eq=False)
class Microbatch:
    """Some rows of a batch.

    Attributes:
        batch: these rows alone; what it runs, if there are none, is nobody's.
        rows: i64[row], ascending indices into the batch.
        tokens: i64[all tokens], where these rows' tokens lie in the batch's packed ones.
    """

    batch: Sequences
    rows: Tensor
    tokens: Tensor

    def take(self, outputs: Outputs) -> Outputs:
        """Return these rows' share of the whole batch's outputs."""
        return {name: value[self.places(name, value)] for name, value in outputs.items()}

    def put(self, part: Outputs, outputs: Outputs) -> None:
        """Write these rows' outputs into those of the whole batch, without gradient."""
        for name, value in part.items():
            outputs[name][self.places(name, value)] = value.detach()

    def places(self, name: str, value: Tensor) -> Tensor:
        """Return the indices that stand for these rows in an output of the whole batch."""
        return (self.rows if name in PER_ROW else self.tokens).to(value.device)


def split_rows(
    batch: Sequences, budget: int, packing: Packing, rank: int = 0, ranks: int = 1
) -> list[Microbatch]:
    """Split a batch into microbatches of at most `budget` tokens, from lengths alone.

    A row is never split; one over the budget stands alone. Tokens are context and response, with
    padding: padded rows of a microbatch are of about one length.

    Args:
        batch: all rows.
        budget: tokens of a microbatch.
        packing: how rows lie in it.
        rank: whose microbatches; the rows of each rank have about as many tokens.
        ranks: how many there are. All get as many microbatches, of which some may have no rows.
    """
    lengths = (batch.context.lengths[-1] + batch.tokens.lengths[-1]).tolist()
    shared = [
        [[rows[i] for i in few] for few in _divided([lengths[i] for i in rows], budget, packing)]
        for rows in _shares(lengths, ranks)
    ]
    mine = as_many(shared)[rank]
    return [microbatch(batch, torch.tensor(sorted(rows))) if rows else rowless() for rows in mine]


def _shares(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Return the rows of each rank; some have none if there are few."""
    some = min(ranks, len(lengths))
    return (balance(lengths, some) if some else []) + [[] for _ in range(ranks - some)]


def _divided(lengths: Sequence[int], budget: int, packing: Packing) -> list[list[int]]:
    return (_in_few_bins if packing == "packed" else _by_length)(lengths, budget)


def _in_few_bins(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return packed rows in few microbatches."""
    alone = [[row] for row, length in enumerate(lengths) if length > budget]
    short = [row for row, length in enumerate(lengths) if length <= budget]
    bins = micro_batches([lengths[row] for row in short], budget)
    return alone + [[short[i] for i in rows] for rows in bins]


def _by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return padded rows, the longest first: each microbatch is as wide as its first row."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not groups or lengths[groups[-1][0]] * (len(groups[-1]) + 1) > budget:
            groups.append([])
        groups[-1].append(row)
    return groups


def microbatch(batch: Sequences, rows: Tensor) -> Microbatch:
    """Return the chosen rows of a batch."""
    tokens = children(batch.tokens.lengths[-1], rows)
    chosen = Sequences(take_rows(batch.context, rows), take_rows(batch.tokens, rows))
    return Microbatch(chosen, rows, tokens)


def rowless() -> Microbatch:
    """Return a microbatch without rows, that runs one token of no meaning: collectives wait."""
    one = Ragged(torch.zeros(1, dtype=torch.int64), (torch.ones(1, dtype=torch.int64),))
    none = torch.zeros(0, dtype=torch.int64)
    return Microbatch(Sequences(one, one), none, none)


def whole_batch(batch: Sequences, outputs: Sequence[str], like: Tensor) -> Outputs:
    """Return room for the outputs of all rows, of the dtype and device of `like`."""
    rows, tokens = len(batch), int(batch.tokens.lengths[-1].sum())
    return {name: like.new_zeros(rows if name in PER_ROW else tokens) for name in outputs}
