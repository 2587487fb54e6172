"""Where in epochs of batches a run stands.

For loops that count in batches; the case bank holds it. Runs of flowrl count in rows, over the
end of an epoch if need be: `flowrl.data.dataset.DataCursor`.
"""

import attrs


@attrs.frozen
class Position:
    """A place in epochs of batches; the first batch is (0, 0)."""

    epoch: int
    batch_offset: int
    remaining_steps: int


def resume_position(global_step: int, *, steps_per_epoch: int, total_epochs: int) -> Position:
    """Return where step `global_step` (0-based: the number of steps done) reads.

    Raises:
        ValueError: there is no such step.
    """
    if steps_per_epoch < 1:
        raise ValueError(f"steps_per_epoch must be above 0; got {steps_per_epoch}")
    steps = steps_per_epoch * total_epochs
    if not 0 <= global_step <= steps:
        raise ValueError(f"global_step must be in [0, {steps}]; got {global_step}")
    epoch, offset = divmod(global_step, steps_per_epoch)
    return Position(epoch, offset, steps - global_step)
