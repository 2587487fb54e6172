"""Steps of programs on tiny models: rows and rewards in memory, tokens sampled or fixed."""

from itertools import cycle, islice

import attrs
import numpy as np
import torch

from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Completion, Sampling
from flowrl.runtime.executor import LocalExecutor
from flowrl.runtime.host import Host, Scores
from flowrl.runtime.loading import Loader
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.role_setup import RoleSetup
from flowrl.runtime.rows.rows import ExampleBatch, PairBatch, PromptBatch, Row
from flowrl.runtime.training.schedule import TrainerOptions

TEXTS = ("one", "a b", "so it goes", "x", "why?", "no", "what now", "b = c")
SMOOTH = TrainerOptions(learning_rate=1.0, eps=1.0, max_grad_norm=1e9)
"""An optimizer whose step is a smooth function of the gradient: g / (|g| + 1)."""


@attrs.define(eq=False)
class Texts:
    """A cursor over prompts in memory, round and round."""

    tokenizer: object
    texts: tuple = TEXTS
    position: int = 0

    def take(self, count):
        everything = cycle(enumerate(self.texts))
        drawn = list(islice(everything, self.position, self.position + count))
        self.position += count
        rows = tuple(Row(i, f"texts:{i}", text, {"answer": text[0]}) for i, text in drawn)
        ids = [self.tokenizer(row.prompt)["input_ids"] for row in rows]
        return PromptBatch(rows, Ragged.of_rows(ids, torch.int64))


class TwoAnswers(Texts):
    """A cursor over pairs: two answers a prompt, of other lengths."""

    def take(self, count):
        prompts = super().take(count)
        draw = np.random.default_rng(0)
        answers = [draw.integers(3, 64, 1 + draw.integers(9)).tolist() for _ in range(2 * count)]
        packed = Ragged.of_rows(answers, torch.int64)
        levels = (torch.full((count,), 2), *packed.lengths)
        mask = torch.ones(len(packed.values), dtype=torch.bool)
        tokens = Ragged(packed.values, levels)
        return PairBatch(prompts.rows, prompts.context, tokens, Ragged(mask, levels))


class OneAnswer(TwoAnswers):
    """A cursor over examples whose first token is not trained."""

    def take(self, count):
        pairs = super().take(count)
        tokens = Ragged.of_rows(pairs.tokens.rows()[::2], torch.int64)
        mask = Ragged.of_rows([[False, *[True] * (len(t) - 1)] for t in tokens.rows()], torch.bool)
        return ExampleBatch(pairs.rows, pairs.context, tokens, mask)


CURSORS = {"Prompts": Texts, "Pairs": TwoAnswers, "Examples": OneAnswer}


class FixedTokens:
    """A generator whose samples follow from their seeds alone, whatever the weights."""

    def load(self, weights, version):
        pass

    def generate(self, requests, sampling):
        return [[self.sample(r.seed + i) for i in range(r.n)] for r in requests]

    def sample(self, seed):
        draw = np.random.default_rng(seed)
        tokens = draw.integers(3, 64, 1 + draw.integers(8)).tolist()
        return Completion(tokens, (-4 + draw.random(len(tokens))).tolist(), truncated=False)


def letters(functions, rows, completions, samples, step, given):
    """Score each completion by its share of small letters, and by its length."""
    small = [sum(c.islower() for c in text) / (1 + len(text)) for text in completions]
    return Scores(
        [[s + len(t) / 10 for s, t in zip(small, completions, strict=True)]] * len(functions), {}
    )


def role(folder, *, dtype="float32", options=SMOOTH, max_tokens=6, block=64):
    """Return how a role is run, on a folder."""
    sampling = Sampling(max_tokens=max_tokens)
    return RoleSetup(
        ModelSpec(folder, dtype=dtype),
        sampling=sampling,
        options=options,
        sequences_per_block=block,
    )


def roles(traced, model_folder, **how):
    """Return how the roles of a program are run; reference and teacher differ from the policy."""
    folders = {"reference": "qwen2", "teacher": "qwen2"}
    models = [spec.name for spec in traced.inputs if spec.kind == "model"]
    return {name: role(model_folder(folders.get(name, "llama")), **how) for name in models}


def executor(
    traced, roles, tokenizer, *, graph=None, generator=None, rows=4, score=letters, **host
):
    """Return what runs a traced program: lowered, or the graph given."""
    graph = traced.lower().graph if graph is None else graph
    made = Host(score=score, **host)
    Loader(graph, roles, dict.fromkeys(roles, tokenizer), made).load()
    if generator is not None:
        made.generators = dict.fromkeys(roles, generator)
    return LocalExecutor(graph, traced.inputs, made, rows)


def cursors(traced, tokenizer):
    """Return a cursor for each data argument of a program."""
    data = [spec for spec in traced.inputs if spec.kind == "data"]
    return {spec.name: CURSORS[spec.data](tokenizer) for spec in data}


def run(executor, cursors, *, steps=1, first=0):
    """Return the carry and the metrics after some steps."""
    carry = executor.first()
    for step in range(first, first + steps):
        done = executor.step(carry, cursors, step)
        carry = done.carry
    return carry, done.metrics


def weights(carry):
    """Return all weights of the models of a carry, as clones, by role and name."""
    models = {name: x for name, x in carry.items() if hasattr(x, "engine")}
    return {
        (role, n): w.detach().clone()
        for role, h in models.items()
        for n, w in h.engine.weights().items()
    }
