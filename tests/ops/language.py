"""Concrete values of one batch, in the language and as the padded tensors they stand for."""

import attrs
import torch

from flowrl.errors import Location
from flowrl.functional.ragged import Ragged, pad, unpad
from flowrl.ir.types import Axis, DType, Origin, TensorType
from flowrl.runtime.graph.eager import Session
from flowrl.runtime.host import Host

HERE = Location("language.py", 1)
PROMPT, SAMPLE, TOKEN, REWARD = (Axis(n, 1) for n in ("prompt", "sample", "token", "reward"))
AXES = (PROMPT, SAMPLE, TOKEN)
POLICY = Origin("policy", 0, 1.0)


@attrs.frozen(eq=False)
class Language:
    """Rows of a `tests.functional.batches.Batch` as samples of prompts."""

    batch: object
    session: Session = attrs.field(factory=lambda: Session(Host()))

    @property
    def groups(self):
        """The prompt of each row, in order."""
        return self.batch.groups.sort().values

    @property
    def levels(self):
        """How many samples each prompt has, and how many tokens each sample."""
        return self.groups.unique(return_counts=True)[1], self.batch.lengths

    def tokens(self, x, origin=None):
        """Return f32 or bool[prompt, sample, token] of packed elements."""
        return self.value(x, AXES, self.levels, origin)

    def samples(self, x):
        """Return f32[prompt, sample]."""
        return self.value(x, AXES[:2], self.levels[:1])

    def rewards(self, x):
        """Return f32[prompt, sample, reward] of [row, reward]."""
        counts = torch.full((len(x),), x.shape[1])
        return self.value(x.flatten(), (PROMPT, SAMPLE, REWARD), (self.levels[0], counts))

    def value(self, x, axes, levels, origin=None):
        dtype = {torch.bool: DType.BOOL, torch.int64: DType.I32}.get(x.dtype, DType.F32)
        return self.session.value(TensorType(dtype, axes, origin), Ragged(x, tuple(levels)))

    def padded(self, x, fill=0.0):
        """Return [row, token]."""
        return pad(x, self.batch.lengths, fill)

    def packed(self, x):
        """Return the packed elements of a padded result, or a result of another form as it is."""
        return unpad(x, self.batch.lengths) if x.dim() == 2 else x


def elements(value):
    """Return the elements of a concrete value."""
    return value.data.values if isinstance(value.data, Ragged) else value.data
