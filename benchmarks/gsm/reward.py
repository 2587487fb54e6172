"""The benchmark's reward."""

import re

ANSWER = re.compile(r"#### *(-?[\d,]*\.?\d+)\s*$")


def solved(completions: list[str], answer: list[str]) -> list[float]:
    """Return 1 for each completion that ends with `####` and the answer's number."""
    return [
        float(_number(text) == float(own)) for text, own in zip(completions, answer, strict=True)
    ]


def _number(text: str) -> float | None:
    found = ANSWER.search(text)
    return float(found[1].replace(",", "")) if found else None
