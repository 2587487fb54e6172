"""The same program on this process and on Ray's workers, with a tiny model."""

import attrs

from flowrl.runtime.job import Job
from flowrl.runtime.ray_executor import RayExecutor
from tests.runtime import steps


@attrs.frozen
class Letters:
    """Rewards as a worker opens them: the share of small letters, and the length."""

    columns = None

    def score(self, plan):
        return steps.letters

    def close(self):
        pass


@attrs.frozen
class InMemory:
    """Prompts as a worker opens them."""

    tokenizer: object
    texts: tuple = steps.TEXTS

    def __call__(self, columns):
        return {"prompts": self}

    @property
    def rows(self):
        return len(self.texts)

    def cursor(self):
        return steps.Texts(self.tokenizer, self.texts)

    def sentence(self):
        return f"{len(self.texts)} texts"


def executor(lowered, tokenizer, pools, *, rows=4, rewards=Letters, **changes):
    """Return what runs a lowered program on pools, on rows and rewards in memory."""
    tokenizers = dict.fromkeys(lowered.models, tokenizer)
    plan, source, inputs = lowered.plan, lowered.graph, lowered.traced.inputs
    data = InMemory(tokenizer)
    job = Job("run", plan, source, inputs, lowered.models, tokenizers, data, rewards, **changes)
    made = RayExecutor(job, pools)
    made.open_rewards()
    made.open_data()
    made.load(rows)
    return made
