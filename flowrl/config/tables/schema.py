"""The tables and keys of a run file; `docs/run_file.md` is made from these classes."""

from typing import Any, Literal

import attrs

from flowrl.config.tables.cluster import ClusterTable
from flowrl.config.tables.engines import EnginesTable
from flowrl.config.tables.models import ModelTable
from flowrl.config.toml.structure import OPEN_TO, Table
from flowrl.config.toml.types import AboveZero, Count, Decay, Fraction, Mass, NotNegative, Positive


@attrs.frozen
class ProgramTable:
    """The algorithm. Every other key is a hyperparameter: a keyword of the program's function."""

    file: str
    """`path.py` of a program, or the name of one that comes with flowrl, such as `grpo`."""
    name: str | None = None
    """The program's function; needed only if the file has several."""
    hyperparameters: dict[str, Any] = attrs.field(factory=dict, metadata={OPEN_TO: object})


@attrs.frozen
class CorrectionTable:
    """Importance weights for the mismatch of engine and trainer; none without this table."""

    level: Literal["token", "sequence", "geomean"] = "token"
    """What is weighted: each token, the product over a sample's tokens, or their geometric mean."""
    mode: Literal["truncate", "mask", "geomean_filter_token_truncate"] = "truncate"
    """`truncate` clamps weights to the bounds; `mask` sets those outside to 0; the last one drops
    samples whose geometric mean is outside, and truncates the token weights of the others."""
    low: NotNegative | None = None
    """Lower bound; none if not given."""
    high: NotNegative = 2.0
    """Upper bound."""


@attrs.frozen
class RewardTable:
    """The rewards. Every other key names one, as the program's `ops.score("name", …)` does.

    `name = "path.py:function"` is short for a table with that `function`, and `name = "http://…"`
    for one with that `http`. A table with `model` is of a reward that a model of this run gives,
    one with `http` of a reward that a server gives.
    """

    on_reward_error: Literal["fail", "drop_group", "score_zero"] = "fail"
    """What happens if a reward raises, takes too long or gives no number."""
    workers: Positive = 1
    """Worker processes that call reward functions."""
    functions: dict[str, Table] = attrs.field(factory=dict, metadata={OPEN_TO: dict})

    @property
    def models(self) -> list[str]:
        """The names of the rewards that models give; a server's model is its own."""
        tables = self.functions.items()
        return [name for name, table in tables if "model" in table and "http" not in table]

    @property
    def servers(self) -> list[str]:
        """The names of the rewards that servers give."""
        return [name for name, table in self.functions.items() if "http" in table]

    @property
    def drops_failed(self) -> bool:
        """Whether the group of a failed reward is dropped."""
        return self.on_reward_error == "drop_group"


@attrs.frozen
class OptimizerSettings:
    """AdamW and its schedule."""

    learning_rate: NotNegative = 1e-6
    """Step size after the warm-up."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""
    eps: AboveZero = 1e-8
    """Added to the root of the second mean."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay."""
    warmup_steps: Count = 0
    """Steps over which the learning rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine", "flat_then_linear"] = "constant"
    """Course of the learning rate after the warm-up."""
    hold_fraction: Fraction = 0.5
    """Share of the steps that `flat_then_linear` stays flat."""
    final_fraction: Fraction = 0.0
    """Share of `learning_rate` that a falling schedule ends at."""
    max_grad_norm: AboveZero = 1.0
    """Norm that gradients are clipped to."""
    start_step: Count = 0
    """First step that updates the weights, so that a critic can train before its policy does."""


@attrs.frozen
class OptimizerTable(OptimizerSettings):
    """AdamW and its schedule; `[optimizer.<role>]` has the same keys, for one role."""

    roles: dict[str, OptimizerSettings] = attrs.field(factory=dict, metadata={OPEN_TO: dict})

    def role(self, role: str) -> OptimizerSettings:
        """Return a role's settings: its own keys over those of `[optimizer]`."""
        return self.roles.get(role, self)


@attrs.frozen
class TrainTable:
    """The run."""

    steps: Positive
    """Steps of the program; one step may hold several optimizer updates."""
    prompts_per_step: Positive
    """Prompts that a step reads; rows, for a program without sampling."""
    seed: Count = 0
    """Seed of everything random."""
    checkpoint_every: Count = 0
    """Steps between checkpoints; 0: only at the end."""
    max_logprob_mismatch: AboveZero | None = None
    """Largest gap between engine and trainer logprobs of a token before the run stops; none if
    not given."""
    max_mean_logprob_mismatch: AboveZero | None = None
    """Largest mean of that gap over a step's tokens: in bfloat16 rounding alone moves single tokens
    far, while a stale or altered weight moves all of them."""
    folder: str | None = None
    """Where checkpoints and logs go; `runs/` and the run file's name if not given. A folder that
    has the results of another run is refused."""


@attrs.frozen
class EvalTable:
    """Evaluation on held-out prompts; none without this table."""

    every_steps: Count = 0
    """Steps between evaluations; 0: only at the end."""
    samples: Positive = 1
    """Completions a prompt."""
    temperature: NotNegative = 1.0
    """Temperature of the samples."""
    greedy: bool = True
    """Report the greedy completion's reward too."""
    pass_at: tuple[Positive, ...] = ()
    """Each k to report pass@k for, of `samples`."""
    prompts: Positive | None = None
    """Most prompts to evaluate on; all if not given."""
    max_tokens: Positive | None = None
    """Most tokens in a completion; as in training if not given."""
    at_start: bool = True
    """Evaluate before the first step."""
    data: Table = attrs.field(factory=dict)
    """Keys of `[data]`, whose own values hold for what is not given."""
    reward: str | None = None
    """Which reward of `[reward]` to report; needed only if there are several."""


@attrs.frozen
class RoleWorkloadTable:
    """How `flowrl plan` assumes a role is run, where `[engines]` doesn't say it."""

    sequences: Positive | None = None
    """Most sequences that an engine runs at once; as many as its cache holds if not given."""
    kv_share: Mass = 0.9
    """Share of the GPU memory left free by weights that an engine takes as KV cache; the engine
    `vllm` takes what its own table says."""


@attrs.frozen
class WorkloadTable:
    """What a step is expected to be, for `flowrl plan`. No key here changes what is computed.

    Every other key is a role. Lengths are a number; or a table of `mean` and `max`, perhaps with
    `p99` or `std`: a lognormal distribution; or a list of `[tokens, weight]`.
    """

    prompt_tokens: AboveZero | dict[str, Any] | list[Any] = 256
    """Tokens of a prompt."""
    response_tokens: AboveZero | dict[str, Any] | list[Any] | None = None
    """Tokens of a completion; if not given, half of `max_tokens` on average, `max_tokens` at
    most."""
    rounds: AboveZero = 1
    """Rounds that `sample_until` takes on average."""
    profile: str | None = None
    """File of measured speeds, which `flowrl profile` writes, or a run's folder with one."""
    roles: dict[str, RoleWorkloadTable] = attrs.field(factory=dict, metadata={OPEN_TO: dict})

    def role(self, role: str) -> RoleWorkloadTable:
        """Return how a role is taken to be run, with defaults where the run file is silent."""
        return self.roles.get(role, RoleWorkloadTable())


@attrs.frozen
class LogTable:
    """What is written while the run goes on."""

    jsonl: bool = True
    """Write `metrics.jsonl`, a record a step and an evaluation; `ops.jsonl`, one an op and step."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    every_steps: Positive = 1
    """Steps between records."""
    samples: Count = 0
    """Completions to write to `samples.jsonl` a step, with prompt and rewards."""
    console: Literal["auto", "rich", "plain"] = "auto"
    """How progress is shown; `auto`: rich on a terminal."""


@attrs.frozen(kw_only=True)
class Tables:
    """A run file."""

    program: ProgramTable
    correction: CorrectionTable | None = None
    models: dict[str, ModelTable]
    engines: EnginesTable = attrs.field(factory=EnginesTable)
    cluster: ClusterTable = attrs.field(factory=ClusterTable)
    data: Table
    reward: RewardTable = attrs.field(factory=RewardTable)
    optimizer: OptimizerTable = attrs.field(factory=OptimizerTable)
    train: TrainTable
    eval: EvalTable | None = None
    workload: WorkloadTable = attrs.field(factory=WorkloadTable)
    log: LogTable = attrs.field(factory=LogTable)

    @property
    def adapted(self) -> list[str]:
        """The roles that are trained by an adapter."""
        return [role for role, model in self.models.items() if model.lora]
