"""How a model is run and trained, and the learning rate at each step."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import attrs

from flowrl.errors import EngineError
from flowrl.runtime.model.attention import Attention, Packing

SHAPES: Mapping[str, Callable[[float, float], float]] = {
    "constant": lambda share, hold: 1.0,
    "linear": lambda share, hold: 1 - share,
    "cosine": lambda share, hold: (1 + math.cos(math.pi * share)) / 2,
    "flat_then_linear": lambda share, hold: (1 - share) / (1 - hold) if share > hold else 1.0,
}
"""How far the rate stands above its lowest, in [0, 1], at each share of the steps."""


@attrs.frozen(kw_only=True)
class ForwardOptions:
    """How to run a model forward.

    Attributes:
        tokens_per_microbatch: context and response tokens that go through the model together.
        packing: how rows lie in a microbatch; by default "padded" on a CPU, "packed" elsewhere.
        attention: by which kernel; the fastest that is here and right for the model if "auto".
        compile: layers are compiled by torch.
    """

    tokens_per_microbatch: int = 4096
    packing: Packing | None = None
    attention: Attention = "auto"
    compile: bool = False

    def __attrs_post_init__(self) -> None:
        self._expect("tokens_per_microbatch", self.tokens_per_microbatch > 0, "above 0")
        self._expect("packing", self.packing in (None, "packed", "padded"), "packed or padded")
        known = get_args(Attention)
        self._expect("attention", self.attention in known, f"one of {', '.join(known)}")

    def _expect(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise EngineError(f"`{name}` must be {expected}; got {getattr(self, name)!r}")


@attrs.frozen
class TrainerOptions(ForwardOptions):
    """How to train a model, and how to run it forward meanwhile.

    Attributes:
        learning_rate: of AdamW, at its highest.
        betas: of AdamW.
        eps: of AdamW.
        weight_decay: decoupled, on all weights, as a share of the learning rate.
        warmup_steps: steps over which the rate rises in equal parts.
        schedule: after the warm-up, towards `total_steps`: "constant"; "linear" or "cosine" down
            to `final_fraction`; or "flat_then_linear", down from a share `hold_fraction` on.
        total_steps: steps of the run; every schedule but "constant" needs it.
        final_fraction: of `learning_rate`, reached after the last step.
        hold_fraction: share of the steps after warm-up for which "flat_then_linear" stays flat.
        max_grad_norm: gradients of a larger norm are scaled down to it; inf is off.
        checkpointing: layers keep their input only, and run forward again before their backward.
        offload_activations: what checkpointed layers keep is in host memory meanwhile.
        offload_optimizer: AdamW's moments are in host memory but for the time of a step.
        start_step: before this step of the run no weight changes (a critic learns first).
    """

    learning_rate: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Literal["constant", "linear", "cosine", "flat_then_linear"] = "constant"
    total_steps: int | None = None
    final_fraction: float = 0.0
    hold_fraction: float = 0.5
    max_grad_norm: float = 1.0
    checkpointing: bool = False
    offload_activations: bool = False
    offload_optimizer: bool = False
    start_step: int = 0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._expect("learning_rate", 0 <= self.learning_rate < math.inf, "at least 0")
        self._expect("betas", all(0 <= beta < 1 for beta in self.betas), "two numbers in [0, 1)")
        self._expect("eps", self.eps > 0, "above 0")
        self._expect("weight_decay", self.weight_decay >= 0, "at least 0")
        self._expect("warmup_steps", self.warmup_steps >= 0, "at least 0")
        self._expect("schedule", self.schedule in SHAPES, f"one of {', '.join(SHAPES)}")
        self._expect("final_fraction", 0 <= self.final_fraction <= 1, "in [0, 1]")
        self._expect("hold_fraction", 0 <= self.hold_fraction <= 1, "in [0, 1]")
        self._expect("max_grad_norm", self.max_grad_norm > 0, "above 0; inf is off")
        self._expect("start_step", self.start_step >= 0, "at least 0")
        if self.schedule != "constant":
            needed = f"the number of steps for a {self.schedule} schedule"
            self._expect("total_steps", bool(self.total_steps and self.total_steps > 0), needed)


def learning_rate(options: TrainerOptions, step: int) -> float:
    """Return the learning rate of a 0-based step of the run; warm-up begins at `start_step`."""
    done = step - options.start_step
    if done < 0:
        return 0.0
    if done < options.warmup_steps:
        return options.learning_rate * (done + 1) / options.warmup_steps
    if options.total_steps is None:
        return options.learning_rate
    left = max(1, options.total_steps - options.start_step - options.warmup_steps)
    share = min(1.0, (done - options.warmup_steps) / left)
    height = SHAPES[options.schedule](share, options.hold_fraction)
    lowest = options.final_fraction
    return options.learning_rate * (lowest + (1 - lowest) * height)
