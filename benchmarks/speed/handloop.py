"""GRPO written by hand for this one case, without a framework: what a step can take at best.

    python handloop.py WORK.json ROW.json [--old engine|trainer]

One process: vLLM, and a transformers model whose parameters are views of vLLM's own tensors. Rows
are of equal length, so a batch of them has no padding, and attention needs no mask. Each microbatch
goes backward at once, through logits of a chunk of tokens at a time, into float32 gradients.

A sample is trained on once by the policy that made it, so its ratio is 1 and no old logprobs are
needed. `--old engine` asks vLLM for them, as flowrl does; `--old trainer` recomputes them.
"""

import argparse
from collections.abc import Sequence

import torch
from clock import Clock, write_row
from handloop_engine import Engine, Sample
from handloop_model import Optimizer, load, logprobs, update
from torch import Tensor
from work import Work

from flowrl.runtime.measures import gpu_peak

EPS = 1e-6


def advantages(samples: list[Sample], group: int) -> Tensor:
    """Return f32[sample]: rewards, the share of odd tokens, as their groups see them."""
    shares = [sum(token & 1 for token in one.tokens) / len(one.tokens) for one in samples]
    rewards = torch.tensor(shares).view(-1, group)
    centred = rewards - rewards.mean(1, keepdim=True)
    return (centred / (rewards.std(1, keepdim=True) + EPS)).flatten()


def microbatches(
    prompts: Sequence[list[int]], samples: list[Sample], work: Work, device: str
) -> list[Tensor]:
    """Return i64[row, token] of prompts and their samples, some rows each."""
    rows = [[*prompts[i // work.samples], *one.tokens] for i, one in enumerate(samples)]
    return list(torch.tensor(rows).to(device).split(work.rows))


def reported(samples: list[Sample], work: Work, device: str) -> list[Tensor]:
    """Return f32[row * token], what vLLM says of each microbatch's samples."""
    all_ = torch.tensor([one.logprobs for one in samples]).to(device)
    return [rows.flatten() for rows in all_.split(work.rows)]


def main(work: Work, row_file: str, old: str | None) -> None:
    """Run all steps, and write the row."""
    engine, clock = Engine(work, logprobs=old == "engine"), Clock()
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
                before = None
                if old == "engine":
                    before = reported(samples, work, engine.device)
                elif old == "trainer":
                    before = [logprobs(model, batch, work) for batch in batches]
            with clock.of("update"):
                update(model, batches, signs, before, work)
                optimizer.step()
            with clock.of("weights"):
                engine.renew(model)
    copied = 0 if shared else sum(p.numel() * p.element_size() for p in model.parameters())
    write_row(row_file, clock.steps, peak_bytes=gpu_peak(), weights_bytes=copied)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Work.load)
    parser.add_argument("row")
    parser.add_argument("--old", choices=["engine", "trainer"])
    given = parser.parse_args()
    main(given.work, given.row, given.old)
