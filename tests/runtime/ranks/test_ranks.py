"""What is done together: what fails there is told as what it is."""

import pytest

from flowrl.runtime.ranks.ranks import Ranks


def test_a_collective_that_lacks_memory_is_not_told_as_a_rank_that_is_missing():
    full = RuntimeError("NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'")

    with pytest.raises(RuntimeError) as error, Ranks(0, 2).together("an update"):
        raise full

    assert error.value is full
