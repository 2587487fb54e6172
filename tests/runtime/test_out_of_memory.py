"""Memory that has run out."""

import pytest
import torch

from flowrl.errors import EngineError
from flowrl.runtime.out_of_memory import out_of_memory_told


def test_a_machine_without_memory_is_told_with_what_takes_less():
    with pytest.raises(EngineError, match="can't allocate memory") as error, out_of_memory_told():
        torch.empty(10**15)

    assert error.value.hint.startswith("lower `tokens_per_microbatch`")
