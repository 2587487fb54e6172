"""A second reward for programs that take several."""


def same_letters(completions: list[str], entry: list[dict[str, str]]) -> list[float]:
    """Return 1 for a completion of the answer's letters, in any order, and 0 for any other."""
    answers = [sorted(row["answer"]) for row in entry]
    return [float(sorted(c) == answer) for c, answer in zip(completions, answers, strict=True)]
