"""The run of grpo.toml by TRL's GRPOTrainer, with vLLM in the same process.

    pip install trl==1.16.0 datasets
    export VLLM_ENABLE_V1_MULTIPROCESSING=0
    python benchmarks/chain_sum/trl_grpo.py benchmarks/chain_sum/grpo.toml FOLDER [a.b=value ...]

FOLDER/trl.jsonl has a row a step: {"step", "seconds" of the steps so far, "reward" of its samples},
"memory", most bytes in use on the GPU so far}, and of those after which the run file evaluates
"heldout" and "greedy", as flowrl samples them.

Model, reward, rows and their order, samples, rates and clip are those of the run file. The mean is
over all tokens of the step ("dapo"), advantages are divided by the group's deviation, weights are
float32 and computed with in bfloat16, as in flowrl. What differs: TRL's old log-probabilities are
its own, recomputed, and vLLM's enter as weights truncated at 3, where flowrl's ratio is to vLLM's;
the first step of the warm-up has a rate of 0; 1e-4 is added to a deviation, not 1e-6; seeds. Layers
aren't checkpointed, which TRL does if not told: the model is small.
"""

import argparse
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from datasets import Dataset
from reward import exact
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from vllm import SamplingParams

from flowrl.config.run_file import RunFile, load_run_file
from flowrl.runtime.measures import gpu_peak
from flowrl.train.opening import DataOpening, RewardOpening
from flowrl.train.prepare import load_tokenizers, lower

AT_ONCE = 256
"""Samples in a forward pass."""


def rows_of(run: RunFile, tokenizer: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows as the run draws them, and those that are held out."""
    lowered = lower(run)
    with closing(RewardOpening.of(run)()) as rewards:
        (rows,) = DataOpening.of(run, lowered, {"policy": tokenizer})(rewards.columns).values()
        (held,) = DataOpening.held_out(run, tokenizer, "policy")(rewards.columns).values()
    drawn = [dict(rows.entries[i].row.columns) for i in rows.order(0)]
    return drawn, [dict(entry.row.columns) for entry in held.entries]


def settings(run: RunFile, samples: int, clip: float) -> GRPOConfig:
    """Return what the trainer is told."""
    on_gpu = torch.cuda.is_available()
    optimizer, generate = run.optimizer.role("policy"), run.engines.role("policy").generate
    assert generate.vllm
    together = run.train.prompts_per_step * samples
    return GRPOConfig(
        output_dir=f"{run.folder}-trl",
        per_device_train_batch_size=min(AT_ONCE, together),
        gradient_accumulation_steps=-(-together // AT_ONCE),
        num_generations=samples,
        max_completion_length=generate.max_tokens,
        max_steps=run.train.steps,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=optimizer.warmup_steps,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_epsilon=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        epsilon=clip,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        temperature=1.0,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=generate.vllm.gpu_memory_utilization,
        vllm_max_model_length=generate.vllm.max_model_len,
        vllm_importance_sampling_mode="token_truncate",
        model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
        bf16=on_gpu,
        use_cpu=not on_gpu,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=run.train.seed,
    )


def reward(completions: list[list[dict[str, str]]], answer: list[str], **_: Any) -> list[float]:
    """Return the run file's reward of the assistant's turns."""
    return exact([turns[0]["content"] for turns in completions], answer)


class Rows(TrainerCallback):  # type: ignore[misc]
    """Times steps, evaluates after some, and writes a row of each."""

    def __init__(self, run: RunFile, tokenizer: Any, held: list[dict[str, Any]], out: Path) -> None:
        self.run, self.tokenizer, self.held, self.out = run, tokenizer, held, out
        self.seconds, self.start = 0.0, 0.0
        self.trainer: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a step, before the first with an evaluation."""
        if state.global_step == 0:
            self._write({"step": 0, "seconds": 0.0} | self._evaluated())
        self.start = moment()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self.seconds += moment() - self.start

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **_: Any
    ) -> None:
        """Write the row of a step that has ended."""
        step, table = state.global_step, self.run.eval
        if "reward" not in logs or table is None:
            return
        last = step == self.run.train.steps
        due = last or (table.every_steps and step % table.every_steps == 0)
        row = {"step": step, "seconds": self.seconds, "reward": logs["reward"]}
        row["memory"] = gpu_peak()
        self._write(row | (self._evaluated() if due else {}))

    def _evaluated(self) -> dict[str, float]:
        """Return the held-out reward, sampled and greedy, of the weights as they are now."""
        self.trainer.vllm_generation.sync_weights()
        assert self.run.eval is not None
        rows = self.held[: self.run.eval.prompts]
        prompts = [
            self.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)
            for row in rows
        ]
        return {
            name: self._reward(prompts, rows, temperature)
            for name, temperature in (("heldout", 1.0), ("greedy", 0.0))
        }

    def _reward(self, prompts: list[Any], rows: list[dict[str, Any]], temperature: float) -> float:
        most = self.run.engines.role("policy").generate.max_tokens
        sampling = [
            SamplingParams(temperature=temperature, max_tokens=most, seed=i)
            for i in range(len(rows))
        ]
        asked = [{"prompt_token_ids": list(prompt["input_ids"])} for prompt in prompts]
        made = self.trainer.vllm_generation.llm.generate(asked, sampling, use_tqdm=False)
        scores = exact([each.outputs[0].text for each in made], [row["answer"] for row in rows])
        return sum(scores) / len(scores)

    def _write(self, row: dict[str, float]) -> None:
        print(row, flush=True)
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def moment() -> float:
    """Return the seconds of a clock, once the GPU has done all."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def main(run: RunFile, folder: Path) -> None:
    """Train, writing rows."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "trl.jsonl"
    out.unlink(missing_ok=True)
    tokenizer = load_tokenizers(lower(run))["policy"]
    drawn, held = rows_of(run, tokenizer)
    rows = Rows(run, tokenizer, held, out)
    given = lower(run).traced.hyperparameters
    rows.trainer = GRPOTrainer(
        model=str(run.resolve(run.roles["policy"].path)),
        reward_funcs=reward,
        args=settings(run, given["samples"], given["clip"]),
        train_dataset=Dataset.from_list(drawn),
        processing_class=tokenizer,
        callbacks=[rows],
    )
    rows.trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_file")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", help="a.b=value over the run file")
    arguments = parser.parse_args()
    main(load_run_file(arguments.run_file, tuple(arguments.sets)), arguments.folder)
