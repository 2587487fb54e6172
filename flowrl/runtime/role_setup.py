"""How each role of a program is run."""

from collections.abc import Mapping

import attrs

from flowrl.runtime.engine import Sampling
from flowrl.runtime.known_engines import FACTS
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2
from flowrl.runtime.training.schedule import TrainerOptions


@attrs.frozen
class RoleSetup:
    """How one role of a program is run.

    Attributes:
        model: what to load.
        generator: the engine that samples from it.
        generator_options: what it is started with, besides the model and its tokenizer.
        generator_device: where that engine lives, if not where the model is trained.
        sampling: how, where the program is silent.
        sequences_per_block: how many sequences the generator computes together; None for all of
            a worker's.
        trainer: the engine that runs it forward and trains it.
        options: of the optimizer and of microbatches.
        fsdp: how its weights are divided over the ranks of its pool; None gives each all.
        shares: whether the trainer computes with the generator's own tensors, where these can be
            lent.
    """

    model: ModelSpec
    generator: str = "hf"
    generator_options: Mapping[str, object] = attrs.field(factory=dict)
    generator_device: str | None = None
    sampling: Sampling = attrs.field(factory=Sampling)
    sequences_per_block: int | None = FACTS["hf"].sequences
    trainer: str = "torch"
    options: TrainerOptions = attrs.field(factory=TrainerOptions)
    fsdp: Fsdp2 | None = None
    shares: bool = False
