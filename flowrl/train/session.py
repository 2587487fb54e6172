"""Programs on concrete values: each op runs at once, in this process, under a debugger."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from flowrl.config.toml.structure import Invalid, structure
from flowrl.data.tokenizer import load_tokenizer
from flowrl.errors import FlowrlError, Location
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Model
from flowrl.ir.records import Buffer, Prompts, flatten
from flowrl.ir.types import DType, ModelType, TensorType, f32, i32
from flowrl.ops.model import PLAIN, Head
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scoring import score_function
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.engine import Sampling, load
from flowrl.runtime.graph.eager import Session
from flowrl.runtime.graph.reading import reader_of
from flowrl.runtime.host import Handle, Host, Resident
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.rows.rows import Row
from flowrl.runtime.training.schedule import TrainerOptions

T = TypeVar("T")


class EagerSession:
    """Models, prompts and rewards on which programs run eagerly, op by op.

    `with fl.session(rewards={"reward": f}) as s: policy = s.model("policy", path)`.

    Args:
        rewards: functions by the name that programs score by: callables, or names as in a run
            file. They are called in this process, without a time limit. Or servers: the fields of
            `flowrl.rewards.server.ServerSpec`, such as `{"http": "http://host:8000/score"}`.
        sampling: how language models sample where the program is silent: the fields of
            `flowrl.runtime.engine.Sampling`, such as `{"max_tokens": 64}`.
        optimizer: how models are trained: the fields of
            `flowrl.runtime.training.schedule.TrainerOptions`, such as `{"learning_rate": 1e-5}`.
        seed: of everything random.

    Raises:
        FlowrlError: an unknown or wrong option, or a reward that can't be found.
    """

    def __init__(
        self,
        *,
        rewards: Mapping[str, str | Callable[..., Any] | Mapping[str, Any]] | None = None,
        sampling: Sampling | Mapping[str, Any] | None = None,
        optimizer: TrainerOptions | Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.sampling = _options(Sampling, sampling, "sampling")
        self.optimizer = _options(TrainerOptions, optimizer, "optimizer")
        self.functions = dict(rewards or {})
        specs = {name: _reward(name, given) for name, given in self.functions.items()}
        self.pool = RewardPool(specs, workers=0, folder=Path.cwd())
        self.host = Host(seed=seed, score=score_function(self.pool, "fail"))
        self.builder = Session(self.host)
        self.tokenizer: Any = None
        self.judges: dict[str, tuple[str, Any]] = {}
        """Folder and tokenizer of each reward model, by role."""

    def model(
        self,
        role: str,
        path: str,
        *,
        head: Head = "lm",
        dtype: Any = "float32",
        device: str = "cpu",
        lora: Lora | Mapping[str, Any] | None = None,
    ) -> Model:
        """Load a model into a role; a language model can be sampled from, and any be trained.

        A reward model gives the reward of its role's name, too, if no function does. With another
        tokenizer than the last language model's it reads text, and can't be trained.

        Args:
            role: the program's name for it.
            path: a transformers folder or hub name.
            head: "lm", "value", "lm+value", "reward" or "token_reward".
            dtype: "float32", "bfloat16" or "float64".
            device: where it lives, as torch writes it: "cuda:0".
            lora: adapters to train in its place: the fields of `flowrl.runtime.model.lora.Lora`,
                such as `{"rank": 16}`.

        Raises:
            EngineError: the folder has no such model, or it none of the layers of `lora`.
            DataError: the folder of a language or reward model has no tokenizer.
        """
        adapter = None if lora is None else _options(Lora, lora, "lora")
        spec = ModelSpec(path, head, dtype, device, lora=adapter)
        engine = load("train", "torch")(spec, self.optimizer, head=head, role=role)
        resident = self.host.models[role] = Resident(role, engine)
        if head in ("lm", "lm+value"):
            self.tokenizer = load_tokenizer(path)
            made = {role: load("generate", "hf")(spec, self.tokenizer)}
            self.host.generators = {**self.host.generators, **made}
            self.host.sampling = {**self.host.sampling, role: self.sampling}
            shape = {name: getattr(self.sampling, name) for name in PLAIN}
            self.builder.sampling = {**self.builder.sampling, role: shape}
            self.host.detokenizers = {**self.host.detokenizers, role: self.tokenizer}
        value = self.builder.value(ModelType(role), Handle(resident, 0))
        assert isinstance(value, Model)
        if head == "reward":
            self.judges[role] = path, load_tokenizer(path)
            if role not in self.functions:
                self.builder.judges[role] = value
        self._let_judges_read()
        return value

    def _let_judges_read(self) -> None:
        """Let reward models whose tokenizer is not the last language model's read text."""
        made = {n: reader_of(n, *judge, self.tokenizer) for n, judge in self.judges.items()}
        self.host.readers = {name: read for name, read in made.items() if read}

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
        """Return numbers, nested in tuples, lists or dicts, or a buffer, as an `fl.Carry`."""
        if isinstance(initial, Buffer):
            return initial
        numbers, unflatten = flatten(initial)
        dtype = torch.get_default_dtype()
        return unflatten(self.builder.value(f32(), torch.tensor(x, dtype=dtype)) for x in numbers)

    def close(self) -> None:
        """End the reward workers."""
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _reward(
    name: str, given: str | Callable[..., Any] | Mapping[str, Any]
) -> RewardSpec | ServerSpec:
    if isinstance(given, Mapping):
        return _options(ServerSpec, given, name)
    return RewardSpec(function=given)


def _options(cls: type[T], given: T | Mapping[str, Any] | None, name: str) -> T:
    """Return a `cls` of its fields in a mapping; tuples stand for lists, as in Python.

    Raises:
        FlowrlError: an unknown field, or a value that it can't have.
    """
    if isinstance(given, cls):
        return given
    fields: Any = {} if given is None else given
    if isinstance(fields, Mapping):
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
    try:
        return structure(cls, fields, (name,))
    except Invalid as error:
        first = error.problems[0]
        raise FlowrlError(first.text, where=f"  {name}={given!r}", hint=first.hint) from None
