"""The tables of a run file that describe models."""

from typing import Literal

import attrs

from flowrl.config.toml.types import AboveZero, Fraction, Positive


@attrs.frozen
class LoraTable:
    """Low-rank adapters, made by peft, that are trained in place of the model (arXiv:2106.09685).

    The model is their base and stays as it is, in its `dtype`; they are float32. Only they are
    sent to the generator. A frozen model of the same `path` and `dtype` is that base: it takes no
    memory.
    """

    rank: Positive = 16
    """Rank of an adapter: the inner dimension of its two matrices."""
    alpha: AboveZero = 32.0
    """An adapter's output is multiplied by `alpha / rank`."""
    dropout: Fraction = 0.0
    """Must be 0: otherwise a policy's ratio to itself would not be 1, and gradients would depend on
    how rows are divided."""
    targets: str | tuple[str, ...] = "all-linear"
    """Linear layers with an adapter, by the last part of their names: `["q_proj", "v_proj"]`."""


@attrs.frozen
class ModelTable:
    """One model of the program, by the name that the program gives it."""

    path: str
    """Folder or hub name of a transformers model. Roles that start from the same weights name the
    same one."""
    head: Literal["lm", "value", "lm+value", "reward", "token_reward"] | None = None
    """What the model computes; what the program reads of it if not given."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Number format that the model computes in; training in bfloat16 keeps float32 weights."""
    lora: LoraTable | None = None
    """Adapters to train in place of the model."""


@attrs.frozen
class RewardModelTable:
    """A reward that a model gives, one number a completion; it is never trained.

    The model is a role by the reward's name: pools claim it, and `[engines.<name>.train]` says how
    it is run. If its tokenizer is not the policy's, it reads text: the prompt and the completion
    as turns of its own chat template, or one after the other if it has none.
    """

    model: str
    """Folder or hub name of a transformers model for sequence classification with one label."""
    head: Literal["reward", "token_reward"] = "reward"
    """What the model computes; of a reward at each token, the last one counts."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Number format that the model computes in."""

    def as_model(self) -> ModelTable:
        """Return the same as a table of `[models]`."""
        return ModelTable(self.model, self.head, self.dtype)
