"""A GPU whose memory has run out, told with what takes less of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from flowrl.errors import EngineError

SAYS = "out of memory"
"""What is in the message of everyone who takes memory: torch, vLLM as it wakes, the driver."""

ADVICE = " If reserved but unallocated"
"""Where torch's message goes on to its own settings."""


@contextmanager
def out_of_memory_told() -> Iterator[None]:
    """Say what takes less memory, where it is said that a GPU has no more of it.

    Raises:
        EngineError: a GPU's memory has run out.
    """
    try:
        yield
    except RuntimeError as error:
        if SAYS not in str(error):
            raise
        raise EngineError(
            str(error).partition(ADVICE)[0],
            hint="lower `tokens_per_microbatch`, set `checkpointing`, or have vLLM reserve less "
            "(`gpu_memory_utilization`); `flowrl plan` shows who takes what of a GPU",
        ) from error
