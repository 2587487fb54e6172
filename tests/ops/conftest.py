"""Laws are tried without a deadline: the first call of a torch function can take its time."""

import pytest
import torch
from hypothesis import settings

from tests.functional.batches import Batch
from tests.ops.language import Language

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def pairs():
    """Return two prompts of two samples, of a token each."""
    groups, one = torch.tensor([0, 0, 1, 1]), torch.ones(4, dtype=torch.int64)
    return Language(Batch(one, one > 0, {}, {}, groups))
