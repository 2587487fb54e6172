"""Microbatches: rows of a batch that go through a model together."""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from flowrl.runtime.engine import Outputs, Sequences
from flowrl.runtime.forward import PER_ROW, Packing
from flowrl.runtime.places import children, take_rows


@attrs.frozen(eq=False)
class Microbatch:
    """Some rows of a batch.

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


def split_rows(batch: Sequences, budget: int, packing: Packing) -> list[Microbatch]:
    """Split a batch into microbatches of at most `budget` tokens, from lengths alone.

    Rows go longest first, so that rows of a microbatch are of about one length. A row is never
    split; one over the budget stands alone. Tokens are context and response, with padding.
    """
    lengths = batch.context.lengths[-1] + batch.tokens.lengths[-1]
    order = torch.sort(lengths, descending=True, stable=True).indices.tolist()
    groups: list[list[int]] = []
    size = longest = 0
    for row in order:
        length = int(lengths[row])
        size += longest if packing == "padded" else length
        if not groups or size > budget:
            groups.append([])
            size = longest = length
        groups[-1].append(row)
    return [microbatch(batch, torch.tensor(sorted(rows))) for rows in groups]


def microbatch(batch: Sequences, rows: Tensor) -> Microbatch:
    """Return the chosen rows of a batch."""
    tokens = children(batch.tokens.lengths[-1], rows)
    chosen = Sequences(take_rows(batch.context, rows), take_rows(batch.tokens, rows))
    return Microbatch(chosen, rows, tokens)


def whole_batch(batch: Sequences, outputs: Sequence[str], like: Tensor) -> Outputs:
    """Return room for the outputs of all rows, of the dtype and device of `like`."""
    rows, tokens = len(batch), int(batch.tokens.lengths[-1].sum())
    return {name: like.new_zeros(rows if name in PER_ROW else tokens) for name in outputs}
