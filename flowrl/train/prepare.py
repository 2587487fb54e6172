"""From a run file to what runs, checked in the order of cost: models are loaded last."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from flowrl.config.check import check_inputs, check_run, cluster_of, trace_run
from flowrl.config.run_file import RunFile
from flowrl.data.dataset import Dataset
from flowrl.data.opening import open_data
from flowrl.data.spec import DataSpec, Kind
from flowrl.data.tokenizer import load_tokenizer
from flowrl.ir.program import Kind as InputKind
from flowrl.ops.model import Score
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.engine import Sampling
from flowrl.runtime.local import RoleSetup, uses_of
from flowrl.runtime.models import ModelSpec
from flowrl.runtime.schedule import TrainerOptions
from flowrl.stages import Lowered

KINDS: dict[str, Kind] = {"Prompts": "prompts", "Examples": "examples", "Pairs": "pairs"}


@attrs.frozen(eq=False)
class Prepared:
    """A run, ready to load its models.

    Attributes:
        run: the run file.
        lowered: the program.
        tokenizers: by role.
        data: the data set of each data input, by name.
        pool: the workers that call reward functions.
    """

    run: RunFile
    lowered: Lowered
    tokenizers: dict[str, Any]
    data: dict[str, Dataset]
    pool: RewardPool


def lower(run: RunFile) -> Lowered:
    """Trace and lower the program of a run file, checking all that needs no file but those two.

    Raises:
        FlowrlError: the program, its hyperparameters, roles, pools or batch sizes are wrong.
    """
    traced, cluster = trace_run(run), cluster_of(run)
    lowered = traced.lower(cluster, {role: role_setup(run, role) for role in run.models})
    check_run(run, lowered.graph, traced.inputs)
    return lowered


def role_setup(run: RunFile, role: str) -> RoleSetup:
    """Return how a role is run, as the run file says."""
    model, engines = run.models[role], run.engines.role(role)
    generate, train, settings = engines.generate, engines.train, run.optimizer.role(role)
    options = {f.name: getattr(settings, f.name) for f in attrs.fields(type(settings))}
    options.pop("roles", None)
    local = run.resolve(model.path)
    return RoleSetup(
        model=ModelSpec(str(local) if local.exists() else model.path, model.head, model.dtype),
        generator=generate.engine,
        sampling=Sampling(
            max_tokens=generate.max_tokens, min_tokens=generate.min_tokens, stop=generate.stop
        ),
        sequences_per_block=generate.sequences_per_block,
        trainer=train.engine,
        options=TrainerOptions(
            **options,
            total_steps=run.train.steps,
            tokens_per_microbatch=train.tokens_per_microbatch,
            packing=train.packing,
        ),
    )


@contextmanager
def prepare(run: RunFile, lowered: Lowered) -> Iterator[Prepared]:
    """Start reward workers, read the data; end the workers when the block ends.

    Raises:
        FlowrlError: a reward, a tokenizer or a row of the data can't be used.
    """
    tokenizers = load_tokenizers(lowered)
    with open_pool(run) as pool:
        data = open_inputs(run, lowered, tokenizers, pool)
        yield Prepared(run, lowered, tokenizers, data, pool)


def open_pool(run: RunFile) -> RewardPool:
    """Start the workers that call the reward functions.

    Raises:
        RewardError: a function can't be found or imported.
    """
    specs = {name: run.structure(RewardSpec, f"reward.{name}") for name in run.reward.functions}
    return RewardPool(specs, workers=run.reward.workers, folder=run.resolve("."))


def load_tokenizers(lowered: Lowered) -> dict[str, Any]:
    """Return the tokenizer of each role that is read, one for those that share a folder."""
    paths = {role: lowered.models[role].model.path for role in uses_of(lowered.graph)}
    made = {path: load_tokenizer(path) for path in dict.fromkeys(paths.values())}
    return {role: made[path] for role, path in paths.items()}


def open_inputs(
    run: RunFile, lowered: Lowered, tokenizers: dict[str, Any], pool: RewardPool
) -> dict[str, Dataset]:
    """Open the data of each data input of the program.

    Raises:
        FlowrlError: the run file describes other inputs, or a row can't be used.
    """
    inputs = {s.name: s.data for s in lowered.traced.inputs if s.kind is InputKind.DATA}
    keys = check_inputs(run, lowered.traced.inputs)
    scored = any(isinstance(node.op, Score) for node in lowered.graph.nodes)
    tokenizer = tokenizers[reader(lowered)]
    return {
        name: open_one(run, key, KINDS[inputs[name]], tokenizer, pool if scored else None)
        for name, key in keys.items()
    }


def open_one(
    run: RunFile, key: str, kind: Kind, tokenizer: Any, pool: RewardPool | None
) -> Dataset:
    """Open the data that the run file describes at `key`, with the columns that rewards need."""
    spec = run.structure(DataSpec, key)
    needs = pool.needs if pool else frozenset()
    data = open_data(
        spec, kind, tokenizer, seed=run.train.seed, folder=run.resolve("."), needs=needs
    )
    if pool:
        pool.check(entry.row for entry in data.entries)
    return data


def reader(lowered: Lowered) -> str:
    """Return the role whose tokenizer reads the data: one that samples, trains, or any."""
    uses = uses_of(lowered.graph)
    for wanted in ("generates", "trains"):
        found = next((role for role, of in uses.items() if getattr(of, wanted)), None)
        if found:
            return found
    return next(iter(uses))
