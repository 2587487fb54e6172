"""Divide packed rows into the minibatches and microbatches that a scan walks."""

import attrs
import torch
from torch import Tensor

from flowrl.functional.lengths import balance, micro_batches, split_even
from flowrl.functional.ragged import Ragged
from flowrl.functional.refusals import SampleRefusedError
from flowrl.ir.graph import Node
from flowrl.ir.types import Axis
from flowrl.ops.division import Microbatches, Minibatches
from flowrl.runtime.graph.origins import SampleError
from flowrl.runtime.rows.selection import Selection, select


@attrs.frozen(eq=False)
class Units:
    """What a division keeps whole: the groups of a batch, or its sequences.

    Attributes:
        axes: of the tokens.
        token_lengths: of the batch's tokens, outermost first.
        whole: whether these are groups, or rows that have no samples.
    """

    axes: tuple[Axis, ...]
    token_lengths: tuple[Tensor, ...]
    whole: bool

    @classmethod
    def of(cls, tokens: Ragged, axes: tuple[Axis, ...], by: str) -> "Units":
        """Return the units of a batch, by "group" or by "sequence"."""
        return cls(axes, tokens.lengths, by == "group" or len(tokens.lengths) < 2)

    def __len__(self) -> int:
        return len(self.token_lengths[0 if self.whole else 1])

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return len(self.token_lengths[-1])

    def sizes(self, context: Ragged) -> list[int]:
        """Return how many tokens each unit has; every sample has its prompt's context."""
        per_row, samples = self.token_lengths[-1], self.token_lengths[:-1]
        if not samples:
            return (context.lengths[0] + per_row).tolist()
        read = context.lengths[0].repeat_interleave(samples[0]) + per_row
        if not self.whole:
            return read.tolist()
        return [int(group.sum()) for group in read.split(samples[0].tolist())]

    def place(self, number: int) -> tuple[int, int | None]:
        """Return the prompt of a unit; of a sequence, also its number in its group."""
        if self.whole:
            return number, None
        prompts = torch.arange(len(self.token_lengths[0])).repeat_interleave(self.token_lengths[0])
        return int(prompts[number]), int((prompts[:number] == prompts[number]).sum())

    def take(self, chosen: Tensor) -> Selection:
        """Return some units as a selection; chosen sequences lie in the order of their prompts."""
        if self.whole:
            return Selection(self.axes[:1], (chosen,))
        kept = torch.zeros(len(self), dtype=torch.bool)
        kept[chosen] = True
        return select(Ragged(kept, self.token_lengths[:1]), self.axes[:2])


def minibatches(
    op: Minibatches, seed: int, axes: tuple[Axis, ...], tokens: Ragged, *context: Ragged
) -> list[Selection]:
    """Return the minibatches of each epoch, in order.

    All sequences are divided into ceil(all / sequences) minibatches: as evenly as whole groups
    allow (`by="group"`) or to within one sequence; or of nearly equal tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    units = Units.of(tokens, axes, op.by)
    if not len(units):
        return []
    count = max(1, min(len(units), -(-units.sequences // op.sequences)))
    tokens_even = op.balance == "tokens"
    parts = balance(units.sizes(*context), count) if tokens_even else []
    divided: list[Selection] = []
    for _ in range(op.epochs):
        order = torch.randperm(count if tokens_even else len(units), generator=generator)
        if tokens_even:
            divided += [units.take(torch.tensor(parts[number])) for number in order.tolist()]
        else:
            divided += map(units.take, order.split(split_even(len(units), count)))
    return divided


def microbatches(node: Node, tokens: Ragged, context: Ragged) -> list[Selection]:
    """Return the microbatches that a node divides a batch into.

    Raises:
        SampleError: a group or a sequence has more than `max_tokens`.
    """
    op = node.op
    assert isinstance(op, Microbatches)
    units = Units.of(tokens, node.args[0].axes, op.by)
    try:
        parts = micro_batches(units.sizes(context), op.max_tokens)
    except SampleRefusedError as error:
        raise _too_long(error, node, units) from error
    return [units.take(torch.tensor(part)) for part in parts]


def _too_long(error: SampleRefusedError, node: Node, units: Units) -> SampleError:
    prompt, sample = units.place(error.sample)
    grouped = units.whole and len(units.axes) > 2
    kind, other = ("group", ', or set `by="sequence"`') if grouped else ("sequence", "")
    return SampleError(
        f"{node.op.name}: {error.problem}".replace("row", kind, 1),
        where=node.loc.excerpt(),
        hint=f"raise `max_tokens`{other}",
        axis=units.axes[0],
        prompt=prompt,
        sample=sample,
    )
