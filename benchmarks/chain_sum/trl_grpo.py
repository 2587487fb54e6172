"""The run of grpo.toml by TRL's GRPOTrainer, with vLLM in the same process.

    pip install trl==1.16.0 datasets
    export VLLM_ENABLE_V1_MULTIPROCESSING=0
    python benchmarks/chain_sum/trl_grpo.py benchmarks/chain_sum/grpo.toml FOLDER [a.b=value ...]

FOLDER/trl.jsonl has a row a step: {"step", "seconds" of the steps so far, "reward" of its samples,
"memory", most bytes in use on the GPU so far}, and in those after which the run file evaluates
"heldout" and "greedy", as flowrl samples them. Seconds are of the same kind as those that flowrl
logs: rows, samples, rewards, the update and weights for vLLM, but neither logs nor evaluations.

Model, reward, rows and their order, samples, rates and clip are those of the run file. The mean is
over all tokens of the step ("dapo"), advantages are divided by the group's deviation, weights are
float32 and computed with in bfloat16, as in flowrl. benchmarks/README.md has what differs. Layers
aren't checkpointed, which TRL does if not told: the model is small.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from reward import exact
from trl import GRPOConfig, GRPOTrainer
from trl_rows import Rows, rows_of

from flowrl.config.run_file import RunFile, load_run_file
from flowrl.train.prepare import load_tokenizers, lower

AT_ONCE = 256
"""Samples in a forward pass."""


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


def main(run: RunFile, folder: Path) -> None:
    """Train, writing rows."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "trl.jsonl"
    out.unlink(missing_ok=True)
    lowered = lower(run)
    tokenizer = load_tokenizers(lowered)["policy"]
    drawn, held = rows_of(run, tokenizer)
    rows = Rows(run, tokenizer, held, exact, out)
    given = lowered.traced.hyperparameters
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
