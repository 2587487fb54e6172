"""Programs on concrete values: each op runs at once, in this process, under a debugger."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from flowrl.data.tokenizer import load_tokenizer
from flowrl.errors import Location
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Model
from flowrl.ir.records import Prompts, flatten
from flowrl.ir.types import DType, ModelType, TensorType, f32, i32
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scoring import score_function
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.eager import Session
from flowrl.runtime.engine import Sampling, load
from flowrl.runtime.host import Handle, Host, Resident
from flowrl.runtime.models import Head, ModelSpec
from flowrl.runtime.rows import Row
from flowrl.runtime.schedule import TrainerOptions


class EagerSession:
    """Models, prompts and rewards to call programs on; see `session`."""

    def __init__(
        self,
        *,
        rewards: Mapping[str, str | Callable[..., Any]] | None = None,
        sampling: Sampling | None = None,
        optimizer: TrainerOptions | None = None,
        seed: int = 0,
    ) -> None:
        specs = {name: RewardSpec(function=f) for name, f in (rewards or {}).items()}
        self.pool = RewardPool(specs, workers=0, folder=Path.cwd())
        self.host = Host(seed=seed, score=score_function(self.pool, "fail"))
        self.host.generators, self.host.sampling, self.host.decoders = {}, {}, {}
        self.sampling = sampling or Sampling()
        self.optimizer = optimizer or TrainerOptions()
        self.builder = Session(self.host)
        self.tokenizer: Any = None

    def model(
        self,
        role: str,
        path: str,
        *,
        head: Head = "lm",
        dtype: Any = "float32",
        device: str = "cpu",
    ) -> Model:
        """Load a model into a role; a language model can be sampled from, and any be trained.

        Args:
            role: the program's name for it.
            path: a transformers folder or hub name.
            head: "lm", "value", "reward" or "token_reward".
            dtype: "float32", "bfloat16" or "float64".
            device: where it lives, as torch writes it: "cuda:0".

        Raises:
            EngineError: the folder has no such model.
        """
        spec = ModelSpec(path, head, dtype, device)
        engine = load("train", "torch")(spec, self.optimizer, head=head, role=role)
        resident = self.host.models[role] = Resident(role, engine)
        if head == "lm":
            self.tokenizer = load_tokenizer(path)
            made = {role: load("generate", "hf")(spec, self.tokenizer)}
            self.host.generators = {**self.host.generators, **made}
            self.host.sampling = {**self.host.sampling, role: self.sampling}
            names = ("temperature", "top_p", "top_k")
            shape = {name: getattr(self.sampling, name) for name in names}
            self.builder.sampling = {**self.builder.sampling, role: shape}
            self.host.decoders = {**self.host.decoders, role: self.tokenizer}
        value = self.builder.value(ModelType(role), Handle(resident, 0))
        assert isinstance(value, Model)
        return value

    def prompts(self, texts: Sequence[str], **columns: Sequence[Any]) -> Prompts:
        """Return prompts, encoded by the tokenizer of the last language model loaded.

        Args:
            texts: the prompts.
            columns: further columns, one entry a prompt, for rewards.
        """
        loc = Location.of_caller()
        first = self.builder.axis("prompt", "prompts", loc)
        context = self.builder.axis("context", "prompts", loc)
        ids = [self.tokenizer(text)["input_ids"] for text in texts]
        rows = tuple(
            Row(i, f"prompt {i}", text, {name: column[i] for name, column in columns.items()})
            for i, text in enumerate(texts)
        )
        made = Prompts(
            self.builder.value(i32(first, context), Ragged.of_rows(ids, torch.int64)),
            self.builder.value(TensorType(DType.ROW, (first,)), rows),
        )
        self.builder.rows[first] = made.rows
        return made

    def carry(self, initial: Any) -> Any:
        """Return a number, or nested tuples, lists or dicts of numbers, as an `fl.Carry`."""
        numbers, unflatten = flatten(initial)
        dtype = torch.get_default_dtype()
        return unflatten(self.builder.value(f32(), torch.tensor(x, dtype=dtype)) for x in numbers)

    def close(self) -> None:
        """End the reward workers."""
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
