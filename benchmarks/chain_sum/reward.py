"""The benchmark's reward."""


def exact(completions: list[str], answer: list[str]) -> list[float]:
    """Return 1 for each completion that is the answer and nothing else."""
    return [float(text.strip() == own) for text, own in zip(completions, answer, strict=True)]
