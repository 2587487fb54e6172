"""Small batches for ops."""

import pytest
import torch

from tests.functional.batches import Batch
from tests.ops.language import Language


@pytest.fixture
def pairs():
    """Return two prompts of two samples, of a token each."""
    groups, one = torch.tensor([0, 0, 1, 1]), torch.ones(4, dtype=torch.int64)
    return Language(Batch(one, one > 0, {}, {}, groups))
