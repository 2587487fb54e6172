"""What operations refuse in their input, where one sample is to blame."""

from torch import Tensor


class SampleRefusedError(ValueError):
    """A value that can't be taken.

    Args:
        problem: what was expected and what came.
        sample: the number of the sample, or row, to blame.
    """

    def __init__(self, problem: str, sample: int) -> None:
        super().__init__(problem, sample)
        self.problem, self.sample = problem, sample

    def __str__(self) -> str:
        return self.problem


def require_finite_tokens(name: str, x: Tensor, mask: Tensor, lengths: Tensor | None) -> None:
    """Refuse numbers of trained tokens that are NaN or infinite.

    Args:
        name: what they are, for the error.
        x: f32[..., token], one a token.
        mask: bool[..., token], True on trained tokens.
        lengths: i64[row] if packed.

    Raises:
        SampleRefusedError: names the first such token by its row and its place there.
    """
    bad = (mask & ~x.isfinite()).flatten().nonzero()[:, 0]
    if len(bad):
        row, token = _place(int(bad[0]), mask, lengths)
        value = x.flatten()[bad[0]].item()
        raise SampleRefusedError(
            f"{name} must be finite on trained tokens; row {row} token {token} has {value}", row
        )


def _place(place: int, mask: Tensor, lengths: Tensor | None) -> tuple[int, int]:
    """Return row and token of a place among all tokens, padded or packed."""
    if lengths is None:
        return divmod(place, mask.shape[-1])
    ends = lengths.cumsum(0)
    row = int((ends <= place).sum())
    return row, place - int(ends[row] - lengths[row])
