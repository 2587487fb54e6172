"""The same program on this process and on Ray's workers, with a tiny model."""

import attrs

from flowrl.runtime.ray_executor import Job
from tests.runtime import steps


@attrs.frozen
class Letters:
    """Rewards as a worker opens them: the share of small letters, and the length."""

    columns = None
    score = staticmethod(steps.letters)

    def close(self):
        pass


@attrs.frozen
class InMemory:
    """Prompts as a worker opens them."""

    tokenizer: object
    texts: tuple = steps.TEXTS

    def __call__(self, columns):
        return {"prompts": self}

    def cursor(self):
        return steps.Texts(self.tokenizer, self.texts)

    def sentence(self):
        return f"{len(self.texts)} texts"


def job(lowered, tokenizer, *, name="run", rows=4, rewards=Letters, **changes):
    """Return a lowered program as a job, on rows and rewards in memory."""
    return Job(
        name,
        lowered.plan,
        lowered.graph,
        lowered.traced.inputs,
        rows,
        lowered.models,
        dict.fromkeys(lowered.models, tokenizer),
        InMemory(tokenizer),
        rewards,
        **changes,
    )
