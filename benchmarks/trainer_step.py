"""An update of a trainer: each attention that is here, with and without compiled layers.

    python benchmarks/trainer_step.py [--shapes smollm2-135m qwen2.5-1.5b] [--tokens N] [--rows N]

Models have the sizes of known ones and random weights. All is measured in one run, in bfloat16, on
a GPU if there is one: tokens a second of whole updates, over batches of other lengths each, and the
most memory that they took. The last columns compare with float32 and padded rows: the largest
difference of a logprob, and that of the gradient's norm as a share. `padded` is transformers' own
attention over padded rows. What is not there says why in place of numbers. Rows that would begin
after `--seconds` are left out. $OUT/trainer_step.json gets all that is printed.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import AutoConfig, AutoModelForCausalLM

from flowrl.compiler.shapes.known import KNOWN
from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Outputs, Sequences
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.layers import compile_layers
from flowrl.runtime.model.models import ModelSpec, quiet_transformers
from flowrl.runtime.training.schedule import TrainerOptions

ROWS = ("varlen", "flash_attn", "flex", "sdpa", "padded")
TINY = KNOWN["smollm2-135m"] | {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}
CONFIGS: Mapping[str, Mapping[str, Any]] = KNOWN | {"tiny": TINY}
PRINTED = ("tokens_per_second", "peak_gib", "graphs", "logprob", "gradient")


@attrs.frozen
class Mean:
    """Minus the mean logprob."""

    tokens: int
    one_pass: bool = True

    def part(self, new: Outputs, rows: Tensor) -> Tensor:
        """Return some rows' share."""
        return -new["logprobs"].sum() / self.tokens

    def cotangents(self, new: Outputs) -> tuple[Tensor, Outputs]:
        """Return the whole mean and its gradient."""
        constant = torch.full_like(new["logprobs"], -1 / self.tokens)
        return self.part(new, torch.empty(0)), {"logprobs": constant}


@attrs.frozen
class Work:
    """What is trained on what.

    Attributes:
        shape: the model's name.
        folder: the model.
        device: where.
        rows: of a batch.
        prompt, response: most tokens; rows have from half of it on.
        tokens: in a microbatch.
    """

    shape: str
    folder: str
    device: str
    rows: int
    prompt: int
    response: int
    tokens: int

    def trainer(self, attention: str, dtype: str = "bfloat16") -> TorchTrainer:
        """Return a trainer that changes no weight."""
        packing: Any = {"packing": "padded"} if attention == "padded" else {"packing": "packed"}
        wanted: Any = "auto" if attention == "padded" else attention
        how = packing | {"tokens_per_microbatch": self.tokens, "attention": wanted}
        spec = ModelSpec(self.folder, "lm", dtype, self.device)  # type: ignore[arg-type]
        return TorchTrainer(spec, TrainerOptions(learning_rate=0.0, **how))

    def batch(self, seed: int, rows: int | None = None) -> Sequences:
        """Return rows of random tokens and lengths."""
        draw, vocabulary = torch.Generator().manual_seed(seed), CONFIGS[self.shape]["vocab_size"]
        count = rows or self.rows

        def some(most: int) -> Ragged:
            lengths = torch.randint(most // 2, most + 1, (count,), generator=draw)
            ids = torch.randint(3, vocabulary, (int(lengths.sum()),), generator=draw)
            return Ragged(ids, (lengths,))

        return Sequences(some(self.prompt), some(self.response))


def made(shape: str, folder: str, device: str) -> None:
    """Write a model of random weights."""
    torch.manual_seed(0)
    sizes = dict(CONFIGS[shape])
    config = AutoConfig.for_model(sizes.pop("model_type"), **sizes, max_position_embeddings=4096)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with quiet_transformers():
        model.save_pretrained(folder)


def updated(trainer: TorchTrainer, batch: Sequences) -> tuple[Tensor, float]:
    """Update; return the logprobs and the gradient's norm."""
    done = trainer.update(batch, ["logprobs"], 1.0, Mean(len(batch.tokens.values)), 0)
    return done.new["logprobs"], done.stats["grad_norm"]


def measured(work: Work, trainer: TorchTrainer, times: int, reference: Any) -> dict[str, Any]:
    """Return the numbers of a row."""
    on_gpu = work.device == "cuda"
    counters.clear()
    logprobs, norm = updated(trainer, work.batch(0, 8))
    updated(trainer, work.batch(1))
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    batches = [work.batch(2 + i) for i in range(times)]
    tokens = sum(len(b.context.values) + len(b.tokens.values) for b in batches)
    start = time.perf_counter()
    for batch in batches:
        updated(trainer, batch)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {
        "tokens_per_second": tokens / seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0,
        "graphs": counters["stats"]["unique_graphs"],
        "logprob": (logprobs - reference[0]).abs().max().item(),
        "gradient": abs(norm / reference[1] - 1),
    }


def rows_of(work: Work, times: int, end: float) -> Iterator[dict[str, Any]]:
    """Yield a record for each attention, plain and compiled."""
    reference = updated(work.trainer("padded", "float32"), work.batch(0, 8))
    for attention in ROWS:
        trainer: TorchTrainer | None = None
        free()
        for compiled in (False, True):
            row: dict[str, Any] = {"shape": work.shape, "attention": attention}
            row["compiled"] = compiled
            if time.monotonic() > end:
                yield row | {"failed": "no time was left"}
                continue
            try:
                trainer = trainer or work.trainer(attention)
                if compiled:
                    compile_layers(trainer.model, "policy")
                yield row | measured(work, trainer, times, reference)
            except EngineError as error:
                yield row | {"failed": error.problem}
                break
            except Exception as error:  # whatever a compiler raises: the other rows go on
                yield row | {"failed": f"{type(error).__name__}: {error}"}


def free() -> None:
    """Give back what the last trainer had."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def line(row: Mapping[str, Any]) -> str:
    """Return a line of the table."""
    name = f"{row['shape']:14} {row['attention']:10} {'compiled' if row['compiled'] else 'plain':9}"
    if "failed" in row:
        return f"{name} {' '.join(row['failed'].split())[:110]}"
    speed, peak, graphs, logprob, gradient = (row[key] for key in PRINTED)
    return f"{name} {speed:9.0f} {peak:7.1f} {graphs:6} {logprob:9.4f} {gradient:9.1e}"


def main() -> None:
    """Print a row as soon as it is there, and the table in the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["smollm2-135m", "qwen2.5-1.5b"])
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--response", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240.0)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    device, found = "cuda" if torch.cuda.is_available() else "cpu", []
    for shape in given.shapes:
        with TemporaryDirectory() as folder:
            made(shape, folder, device)
            sizes = given.rows, given.prompt, given.response, given.tokens
            for row in rows_of(Work(shape, folder, device, *sizes), given.times, end):
                print(line(row), flush=True)
                found.append(row)
                if "OUT" in os.environ:
                    file = Path(os.environ["OUT"]) / "trainer_step.json"
                    file.write_text(json.dumps(found, indent=1))
        free()
    columns = f"{'tokens/s':>9} {'GiB':>7} {'graphs':>6} {'logprob':>9} {'gradient':>9}"
    print(f"\n{'model':14} {'attention':10} {'layers':9} {columns}")
    print("\n".join(map(line, found)))


if __name__ == "__main__":
    main()
