"""TRL's row: its GRPOTrainer, with vLLM in the same process, on the same work.

    python trl_grpo.py WORK.json ROW.json [--kind]

As TRL's defaults have it, the model is float32 under autocast, layers are checkpointed, and old
logprobs are recomputed to correct for what engine and trainer differ by. `--kind` spares it all
three: bfloat16, no checkpoints, vLLM's word is taken. Seconds are those of TRL's own profiling
contexts. What is left of a step outside of them and of `_prepare_inputs` is the update.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from clock import Clock, moment, write_row
from datasets import Dataset
from reward import odd
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.extras.profiling import ProfilingContext
from work import Work

from flowrl.runtime.measures import gpu_peak

PARTS = {
    "vLLM.generate": "generate",
    "sync_weights": "weights",
    "_calculate_rewards": "reward",
    "_prepare_inputs": "inputs",
}
"""Parts of a step by profiling context."""
LOGPROBS = "_get_per_token_logps_and_entropies"


class Steps(TrainerCallback):  # type: ignore[misc]
    """Times steps, each until the end of the next one: with all that the trainer does between."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.start = clock, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the first step."""
        self.start = self.start or moment()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End a step; the next one has begun."""
        now = moment()
        spent = now - self.start
        self.clock.add("step", spent)
        self.clock.add("update", spent - self.clock.now.pop("inputs"))
        self.clock.end()
        self.start = now


def listen(clock: Clock) -> None:
    """Have TRL's profiling contexts tell the clock."""

    def tell(self: ProfilingContext, _: float) -> None:
        name = self.name.removeprefix("GRPOTrainer.")
        part = PARTS.get(name)
        if name == LOGPROBS and not torch.is_grad_enabled():
            part = "logprobs"
        if part:
            moment()
            clock.add(part, time.perf_counter() - self._start_time)

    ProfilingContext._log_metrics = tell


def settings(work: Work, *, kind: bool) -> GRPOConfig:
    """Return what the trainer is told: this work, and else its defaults."""
    return GRPOConfig(
        output_dir=f"{work.folder}-trl",
        per_device_train_batch_size=work.rows,
        gradient_accumulation_steps=work.sequences // work.rows,
        num_generations=work.samples,
        max_completion_length=work.tokens,
        max_steps=work.steps,
        learning_rate=work.learning_rate,
        lr_scheduler_type="constant",
        epsilon=work.clip,
        max_grad_norm=work.max_grad_norm,
        beta=0.0,
        loss_type="dapo",  # the mean over all tokens
        optim="adamw_torch_fused",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=not kind,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=work.gpu_share,
        vllm_max_model_length=work.length + 8,
        vllm_importance_sampling_correction=not kind,
        generation_kwargs={"ignore_eos": True},
        model_init_kwargs={
            "dtype": "bfloat16" if kind else "float32",
            "attn_implementation": "sdpa",
        },
        shuffle_dataset=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def reward(completions: list[str], **_: Any) -> list[float]:
    """Return the reward of each sample."""
    return odd(completions)


def main(work: Work, row_file: str, *, kind: bool) -> None:
    """Train, and write the row."""
    lines = Path(work.data).read_text().splitlines()
    clock = Clock()
    listen(clock)
    trainer = GRPOTrainer(
        model=work.model,
        reward_funcs=reward,
        args=settings(work, kind=kind),
        train_dataset=Dataset.from_list([json.loads(line) for line in lines]),
        processing_class=PreTrainedTokenizerFast.from_pretrained(work.model, eos_token="</s>"),
        callbacks=[Steps(clock)],
    )
    trainer.train()
    copied = sum(p.numel() * p.element_size() for p in trainer.model.parameters())
    write_row(row_file, clock.steps, peak_bytes=gpu_peak(), weights_bytes=copied)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Work.load)
    parser.add_argument("row")
    parser.add_argument("--kind", action="store_true")
    given = parser.parse_args()
    main(given.work, given.row, kind=given.kind)
