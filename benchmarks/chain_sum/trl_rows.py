"""What TRL's run reads and writes: rows as the run file draws them, and a row of each step."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import TrainerCallback
from vllm import SamplingParams

from flowrl.config.run_file import RunFile
from flowrl.runtime.measures import gpu_peak
from flowrl.train.opening import DataOpening, RewardOpening
from flowrl.train.prepare import lower

Score = Callable[[list[str], list[str]], list[float]]
"""Rewards of completions, given their answers."""


def rows_of(run: RunFile, tokenizer: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows as the run draws them, and those that are held out."""
    lowered = lower(run)
    with closing(RewardOpening.of(run)()) as rewards:
        (rows,) = DataOpening.of(run, lowered, {"policy": tokenizer})(rewards.columns).values()
        (held,) = DataOpening.held_out(run, tokenizer, "policy")(rewards.columns).values()
    drawn = [dict(rows.entries[i].row.columns) for i in rows.order(0)]
    return drawn, [dict(entry.row.columns) for entry in held.entries]


class Rows(TrainerCallback):  # type: ignore[misc]
    """Times steps, evaluates after some, and writes a row of each.

    A step begins where the one before, its logs and its evaluation have ended: rows that the
    trainer loads for it count.
    """

    def __init__(
        self, run: RunFile, tokenizer: Any, held: list[dict[str, Any]], score: Score, out: Path
    ) -> None:
        self.run, self.tokenizer, self.held = run, tokenizer, held
        self.score, self.out = score, out
        self.seconds, self.start = 0.0, 0.0
        self.trainer: Any = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Evaluate what there is, and begin the first step."""
        self._write({"step": 0, "seconds": 0.0} | self._evaluated())
        self.start = moment()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self.seconds += moment() - self.start

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **_: Any
    ) -> None:
        """Write the row of a step that has ended, and begin the next one."""
        step, table = state.global_step, self.run.eval
        if "reward" not in logs or table is None:
            return
        last = step == self.run.train.steps
        due = last or (table.every_steps and step % table.every_steps == 0)
        row = {"step": step, "seconds": self.seconds, "reward": logs["reward"]}
        row["memory"] = gpu_peak()
        self._write(row | (self._evaluated() if due else {}))
        self.start = moment()

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
        tokens = [each.outputs[0].token_ids for each in made]
        texts = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        scores = self.score(texts, [row["answer"] for row in rows])
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
