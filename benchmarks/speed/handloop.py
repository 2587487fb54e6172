"""GRPO written by hand for this one case, without a framework: what a step can take at best.

    python handloop.py WORK.json ROW.json [--old]

One process: vLLM, and a transformers model whose parameters are views of vLLM's own tensors. Rows
are of equal length, so a batch of them has no padding, and attention needs no mask. Each microbatch
goes backward at once, through logits of a chunk of tokens at a time, into float32 gradients.

A sample is trained on once by the policy that made it, so its ratio is 1 and no old logprobs are
needed; `--old` recomputes them, as trainers do that don't trust those of the engine.
"""

import argparse
from collections.abc import Sequence

import torch
from clock import Clock, peak, write_row
from handloop_engine import Engine
from handloop_model import Optimizer, load, logprobs, update
from torch import Tensor
from work import Work

EPS = 1e-6


def advantages(samples: list[list[int]], group: int) -> Tensor:
    """Return f32[sample]: rewards, the share of odd tokens, as their groups see them."""
    shares = [sum(token & 1 for token in tokens) / len(tokens) for tokens in samples]
    rewards = torch.tensor(shares).view(-1, group)
    centred = rewards - rewards.mean(1, keepdim=True)
    return (centred / (rewards.std(1, keepdim=True) + EPS)).flatten()


def microbatches(
    prompts: Sequence[list[int]], samples: list[list[int]], work: Work, device: str
) -> list[Tensor]:
    """Return i64[row, token] of prompts and their samples, some rows each."""
    rows = [[*prompts[i // work.samples], *tokens] for i, tokens in enumerate(samples)]
    return list(torch.tensor(rows).to(device).split(work.rows))


def main(work: Work, row_file: str, *, old: bool) -> None:
    """Run all steps, and write the row."""
    engine, clock = Engine(work), Clock()
    model = load(work, engine.device)
    shared = engine.share(model)
    optimizer = Optimizer(model, work)
    for number in range(work.steps):
        with clock.step():
            prompts = engine.prompts(number)
            with clock.of("generate"):
                samples = engine.generate(prompts)
            batches = microbatches(prompts, samples, work, engine.device)
            with clock.of("reward"):
                signs = advantages(samples, work.samples).to(engine.device).split(work.rows)
            with clock.of("logprobs"):
                before = [logprobs(model, batch, work) for batch in batches] if old else None
            with clock.of("update"):
                update(model, batches, signs, before, work)
                optimizer.step()
            with clock.of("weights"):
                engine.renew(model)
    copied = 0 if shared else sum(p.numel() * p.element_size() for p in model.parameters())
    write_row(row_file, clock.steps, peak_bytes=peak(), weights_bytes=copied)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Work.load)
    parser.add_argument("row")
    parser.add_argument("--old", action="store_true")
    given = parser.parse_args()
    main(given.work, given.row, old=given.old)
