"""The reward of the runs: cheap, and different for each sample."""


def odd(completions: list[str]) -> list[float]:
    """Return the share of characters whose number is odd."""
    return [sum(ord(c) & 1 for c in text) / max(1, len(text)) for text in completions]
