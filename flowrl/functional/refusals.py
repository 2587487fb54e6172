"""What operations refuse in their input, where one sample is to blame."""


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
