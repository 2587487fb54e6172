"""A GPU whose memory has run out, told with what takes less of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from flowrl.errors import EngineError

ADVICE = " If reserved but unallocated"
"""Where torch's message goes on to its own settings."""


def lacks_memory(error: Exception) -> bool:
    """Whether a GPU has no more memory, by whoever wants it: torch, NCCL, or vLLM as it wakes."""
    return isinstance(error, RuntimeError) and "out of memory" in str(error)


@contextmanager
def out_of_memory_told() -> Iterator[None]:
    """Say what takes less memory, where a GPU has no more of it.

    Raises:
        EngineError: a GPU's memory has run out.
    """
    try:
        yield
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        raise EngineError(
            str(error).partition(ADVICE)[0],
            hint="lower `tokens_per_microbatch`, set `checkpointing`, or have vLLM reserve less "
            "(`gpu_memory_utilization`); `flowrl plan` shows who takes what of a GPU",
        ) from error
