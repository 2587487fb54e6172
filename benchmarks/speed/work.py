"""What a step is, for every system the same: read off the run file that flowrl's row runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.run_file import RunFile, load_run_file

HERE = Path(__file__).parent
SMOKE = {
    "program.samples": "4",
    "engines.policy.generate.max_tokens": "8",
    "engines.policy.generate.vllm.max_model_len": "64",
    "engines.policy.generate.vllm.max_num_seqs": "16",
    "engines.policy.train.tokens_per_microbatch": "256",
    "engines.policy.train.compile": "false",
    "cluster.machines": "1xCPU",
    "cluster.pools.main.gpus": "0",
    "train.prompts_per_step": "4",
    "workload.prompt_tokens": "16",
    "workload.response_tokens": "8",
}
"""What is laid over a run file for a step of a tiny model on a CPU."""


@attrs.frozen
class Work:
    """One workload.

    Attributes:
        name: of its run file.
        run_file: the file.
        sets: what is laid over it: `key=value`.
        model: the model's folder, with its tokenizer; it has the name of the model's sizes.
        data: JSONL of prompts, in the order of the steps.
        folder: of flowrl's run.
        steps: to run.
        prompts: in a step.
        samples: of each prompt.
        prompt_tokens, tokens: of each prompt and each sample, exactly.
        microbatch_tokens: most tokens that are trained on at once.
        gpu_share: of the GPU's memory, vLLM's.
        learning_rate: of AdamW.
        clip: how far a ratio may be from 1.
        max_grad_norm: that gradients are clipped to.
    """

    name: str
    run_file: str
    sets: tuple[str, ...]
    model: str
    data: str
    folder: str
    steps: int
    prompts: int
    samples: int
    prompt_tokens: int
    tokens: int
    microbatch_tokens: int
    gpu_share: float
    learning_rate: float
    clip: float
    max_grad_norm: float

    @property
    def sequences(self) -> int:
        """Samples of a step."""
        return self.prompts * self.samples

    @property
    def length(self) -> int:
        """Tokens of a prompt and its sample."""
        return self.prompt_tokens + self.tokens

    @property
    def rows(self) -> int:
        """Samples of a microbatch: the most that fit, of those numbers that divide all."""
        fit = self.microbatch_tokens // self.length
        return max(n for n in range(1, fit + 1) if self.sequences % n == 0)

    @classmethod
    def load(cls, file: str) -> "Work":
        """Return what `save` wrote."""
        fields = json.loads(Path(file).read_text())
        return cls(**{**fields, "sets": tuple(fields["sets"])})

    def save(self, file: Path) -> None:
        """Write it for a process of its own."""
        file.write_text(json.dumps(attrs.asdict(self), indent=1))


def work_of(name: str, folder: Path, steps: int, *, tiny: bool) -> Work:
    """Return a workload.

    Args:
        name: of its run file, beside this one.
        folder: for models, data and runs.
        steps: to run.
        tiny: take a tiny model and few tokens, on a CPU.

    Raises:
        RunFileError: there is no such run file.
    """
    file = str(HERE / f"{name}.toml")
    shape = "tiny" if tiny else Path(load_run_file(file).models["policy"].path).name
    own = {
        "models.policy.path": folder / shape,
        "data.source": folder / f"{name}.jsonl",
        "train.folder": folder / f"run-{name}",
        "train.steps": steps,
    }
    sets = tuple(
        f"{key}={value}" for key, value in [*own.items(), *(SMOKE.items() if tiny else ())]
    )
    return Work(name, file, sets, **_read(load_run_file(file, sets)))


def _read(run: RunFile) -> Mapping[str, Any]:
    role = run.engines.role("policy")
    vllm, hyperparameters = role.generate.vllm, run.program.hyperparameters
    prompt_tokens = run.workload.prompt_tokens
    assert vllm is not None
    assert isinstance(prompt_tokens, float)
    return {
        "model": run.models["policy"].path,
        "data": run.data["source"],
        "folder": str(run.folder),
        "steps": run.train.steps,
        "prompts": run.train.prompts_per_step,
        "samples": hyperparameters["samples"],
        "prompt_tokens": int(prompt_tokens),
        "tokens": role.generate.max_tokens,
        "microbatch_tokens": role.train.tokens_per_microbatch,
        "gpu_share": vllm.gpu_memory_utilization,
        "learning_rate": run.optimizer.learning_rate,
        "clip": hyperparameters["clip"],
        "max_grad_norm": run.optimizer.max_grad_norm,
    }
