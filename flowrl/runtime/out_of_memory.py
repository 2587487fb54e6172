"""Memory that has run out, of a GPU or of the machine, told with what takes less of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from flowrl.errors import EngineError

ADVICE = " If reserved but unallocated"
"""Where torch's message goes on to its own settings."""
SAID = ("out of memory", "can't allocate memory")
"""What messages have of a GPU's memory, by torch, NCCL or vLLM as it wakes; and of a machine's."""


def lacks_memory(error: Exception) -> bool:
    """Whether there is no more memory, by whoever wants it."""
    return isinstance(error, RuntimeError) and any(said in str(error) for said in SAID)


@contextmanager
def out_of_memory_told() -> Iterator[None]:
    """Say what takes less memory, where there is no more of it.

    Raises:
        EngineError: memory has run out.
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
