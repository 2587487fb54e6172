"""A task: write the letter that the prompt names."""

import string


def rows(count=26):
    """Yield a row a letter: the prompt, and a column for the reward."""
    for letter in string.ascii_lowercase[:count]:
        yield {"prompt": f"{letter}:", "letter": letter}


def share(completions, letter):
    """Return the share of each completion that is its row's letter."""
    return [text.count(c) / max(len(text), 1) for text, c in zip(completions, letter, strict=True)]


async def brief(completions):
    """Return 1 for each completion of at most three characters, else 0."""
    return [len(text) <= 3 for text in completions]
