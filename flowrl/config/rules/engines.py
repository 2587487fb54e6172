"""What a run file says of engines, key against key."""

from collections.abc import Iterator

from flowrl.config.rules.limits import above
from flowrl.config.tables.engines import GenerateTable, TrainerTable
from flowrl.config.tables.models import ModelTable
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted
from flowrl.config.toml.types import as_toml
from flowrl.errors import nearest
from flowrl.runtime.known_engines import ENGINES, FACTS


def engines_fit(tables: Tables) -> Iterator[Problem]:
    """Yield settings of engines that don't go together, or with the model."""
    for role, engines in tables.engines.roles.items():
        generate, train = engines.generate, engines.train
        path: KeyPath = ("engines", role, "generate")
        yield from _known((*path, "engine"), "generate", generate.engine)
        yield from _known(("engines", role, "train", "engine"), "train", train.engine)
        yield from _completions(path, generate)
        yield from _options(path, generate)
        if role in tables.models:
            yield from _model(path, generate, tables.models[role])
        yield from _stops((*path, "stop"), generate.stop)
        yield from _rooms(path, generate)
        yield from _kernels(("engines", role, "train"), train)
        yield from _offloads(("engines", role, "train"), train)


def _known(path: KeyPath, use: str, engine: str) -> Iterator[Problem]:
    """Yield an engine that there is not."""
    if engine not in (known := ENGINES[use]):
        yield Problem(
            path,
            f"no engine called `{engine}` can {use}{nearest(engine, known)}",
            hint=f"there are {', '.join(sorted(known))}",
        )


def _completions(path: KeyPath, generate: GenerateTable) -> Iterator[Problem]:
    """Yield completions of more tokens at least than at most."""
    least, most = generate.min_tokens, generate.max_tokens
    if least > most:
        yield above((*path, "min_tokens"), least, (*path, "max_tokens"), most)


def _options(path: KeyPath, generate: GenerateTable) -> Iterator[Problem]:
    """Yield settings of an engine that is not taken."""
    if generate.vllm and generate.engine != "vllm":
        yield Problem(
            (*path, "vllm"),
            f"`{dotted((*path, 'vllm'))}` is of the engine `vllm`; "
            f"`{dotted((*path, 'engine'))}` is {as_toml(generate.engine)}",
            hint='set `engine = "vllm"`, or leave the table out',
            against=((*path, "engine"),),
        )


def _model(path: KeyPath, generate: GenerateTable, model: ModelTable) -> Iterator[Problem]:
    """Yield dtypes, temperatures and adapters of a model that its engine can't sample with."""
    role, facts = path[1], FACTS.get(generate.engine)
    if facts is None:
        return
    engine = f"`{dotted((*path, 'engine'))}` = {as_toml(generate.engine)}"
    if model.dtype not in facts.dtypes:
        yield Problem(
            (*path, "engine"),
            f"{engine} computes in {' or '.join(facts.dtypes)}; `models.{role}.dtype` is "
            f"{as_toml(model.dtype)}",
            hint='take another dtype, or `engine = "hf"`',
            against=(("models", role, "dtype"),),
        )
    if not facts.samples_at(temperature := generate.temperature or 0.0):
        yield Problem(
            (*path, "temperature"),
            f"{engine} samples at {facts.range}; `{dotted((*path, 'temperature'))}` is "
            f"{temperature:g}",
            hint=another_temperature(generate.engine),
            against=((*path, "engine"),),
        )
    if model.lora and model.lora.rank > facts.adapter_rank:
        yield Problem(
            ("models", role, "lora", "rank"),
            f"{engine} takes adapters of rank {facts.adapter_rank} at most; "
            f"`models.{role}.lora.rank` is {model.lora.rank}",
            hint='take a lower rank, or `engine = "hf"`',
            against=((*path, "engine"),),
        )


def another_temperature(engine: str) -> str:
    """Return what to do about a temperature that an engine doesn't sample at."""
    return "take another temperature" + (', or `engine = "hf"`' if engine != "hf" else "")


def _stops(path: KeyPath, stop: tuple[str, ...]) -> Iterator[Problem]:
    """Yield stop strings that are empty: they would end each completion before it begins."""
    if not all(stop):
        yield Problem(
            path,
            f"`{dotted(path)}` must be strings that are not empty; got {as_toml(list(stop))}",
            hint="leave the empty one out",
        )


def _rooms(path: KeyPath, generate: GenerateTable) -> Iterator[Problem]:
    """Yield a length of vLLM's that leaves no room for a prompt."""
    length, most = generate.vllm and generate.vllm.max_model_len, generate.max_tokens
    if length and most >= length:  # a prompt has a token
        yield Problem(
            (*path, "vllm", "max_model_len"),
            f"`{dotted((*path, 'vllm', 'max_model_len'))}` = {length} leaves no room for a "
            f"prompt beside a completion of `{dotted((*path, 'max_tokens'))}` = {most}",
            against=((*path, "max_tokens"),),
        )


def _kernels(path: KeyPath, train: TrainerTable) -> Iterator[Problem]:
    """Yield kernels of packed rows where rows are padded."""
    if train.packing == "padded" and train.attention not in ("auto", "sdpa"):
        yield Problem(
            (*path, "attention"),
            f"`{dotted((*path, 'attention'))}` = {as_toml(train.attention)} needs packed rows; "
            '`packing` is "padded"',
            hint="leave one of them out",
            against=((*path, "packing"),),
        )


def _offloads(path: KeyPath, train: TrainerTable) -> Iterator[Problem]:
    """Yield what is to be in host memory and can't be taken there."""
    if train.offload == "all" and train.shard == "none":
        yield Problem(
            (*path, "offload"),
            f'`{dotted((*path, "offload"))}` = "all" is for weights that are gathered layer by '
            'layer; `shard` is "none"',
            hint='set `shard = "fsdp2"`, or `offload = "optimizer"`',
            against=((*path, "shard"),),
        )
    if train.offload_activations and not train.checkpointing:
        yield Problem(
            (*path, "offload_activations"),
            f"`{dotted((*path, 'offload_activations'))}` is for what checkpointed layers keep; "
            "`checkpointing` is false",
            hint="set `checkpointing = true`",
            against=((*path, "checkpointing"),),
        )
