"""What a run file says of engines, key against key."""

from collections.abc import Iterator

from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import KeyPath, Problem, dotted
from flowrl.config.toml.types import as_toml
from flowrl.errors import nearest
from flowrl.runtime.known_engines import ENGINES, FACTS


def engines_fit(tables: Tables) -> Iterator[Problem]:
    """Yield settings of engines that don't go together."""
    yield from _unknown(tables)
    yield from _generators(tables)
    yield from _samplers(tables)
    yield from _stops(tables)
    yield from _rooms(tables)
    yield from _kernels(tables)
    yield from _offloads(tables)


def _unknown(tables: Tables) -> Iterator[Problem]:
    """Yield engines that there are not."""
    for role, engines in tables.engines.roles.items():
        named = ("generate", engines.generate.engine), ("train", engines.train.engine)
        for use, engine in named:
            if engine not in (known := ENGINES[use]):
                yield Problem(
                    ("engines", role, use, "engine"),
                    f"no engine called `{engine}` can {use}{nearest(engine, known)}",
                    hint=f"there are {', '.join(sorted(known))}",
                )


def _generators(tables: Tables) -> Iterator[Problem]:
    """Yield settings of an engine that is not taken."""
    for role, engines in tables.engines.roles.items():
        path: KeyPath = ("engines", role, "generate")
        if engines.generate.vllm and engines.generate.engine != "vllm":
            yield Problem(
                (*path, "vllm"),
                f"`{dotted((*path, 'vllm'))}` is of the engine `vllm`; "
                f"`{dotted((*path, 'engine'))}` is {as_toml(engines.generate.engine)}",
                hint='set `engine = "vllm"`, or leave the table out',
                against=((*path, "engine"),),
            )


def _samplers(tables: Tables) -> Iterator[Problem]:
    """Yield dtypes, temperatures and adapters of models that their engine can't sample with."""
    for role, engines in tables.engines.roles.items():
        facts, model = FACTS.get(engines.generate.engine), tables.models.get(role)
        if facts is None or model is None:
            continue
        path: KeyPath = ("engines", role, "generate")
        engine = f"`{dotted((*path, 'engine'))}` = {as_toml(engines.generate.engine)}"
        if model.dtype not in facts.dtypes:
            yield Problem(
                (*path, "engine"),
                f"{engine} computes in {' or '.join(facts.dtypes)}; `models.{role}.dtype` is "
                f"{as_toml(model.dtype)}",
                hint='take another dtype, or `engine = "hf"`',
                against=(("models", role, "dtype"),),
            )
        if not facts.samples_at(temperature := engines.generate.temperature or 0.0):
            yield Problem(
                (*path, "temperature"),
                f"{engine} samples at {facts.range}; `{dotted((*path, 'temperature'))}` is "
                f"{temperature:g}",
                hint='take another temperature, or `engine = "hf"`',
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


def _stops(tables: Tables) -> Iterator[Problem]:
    """Yield stop strings that are empty: they would end each completion before it begins."""
    for role, engines in tables.engines.roles.items():
        path: KeyPath = ("engines", role, "generate", "stop")
        if not all(stop := engines.generate.stop):
            yield Problem(
                path,
                f"`{dotted(path)}` must be strings that are not empty; got {as_toml(list(stop))}",
                hint="leave the empty one out",
            )


def _rooms(tables: Tables) -> Iterator[Problem]:
    """Yield lengths of vLLM's that leave no room for a prompt."""
    for role, engines in tables.engines.roles.items():
        path, most = ("engines", role, "generate"), engines.generate.max_tokens
        length = engines.generate.vllm and engines.generate.vllm.max_model_len
        if length and most >= length:  # a prompt has a token
            yield Problem(
                (*path, "vllm", "max_model_len"),
                f"`{dotted((*path, 'vllm', 'max_model_len'))}` = {length} leaves no room for a "
                f"prompt beside a completion of `{dotted((*path, 'max_tokens'))}` = {most}",
                against=((*path, "max_tokens"),),
            )


def _kernels(tables: Tables) -> Iterator[Problem]:
    """Yield kernels of packed rows where rows are padded."""
    for role, engines in tables.engines.roles.items():
        train, path = engines.train, ("engines", role, "train")
        if train.packing == "padded" and train.attention not in ("auto", "sdpa"):
            yield Problem(
                (*path, "attention"),
                f"`{dotted((*path, 'attention'))}` = {as_toml(train.attention)} is of packed rows; "
                '`packing` is "padded"',
                hint="leave one of them out",
                against=((*path, "packing"),),
            )


def _offloads(tables: Tables) -> Iterator[Problem]:
    """Yield what is to be in host memory and can't be taken there."""
    for role, engines in tables.engines.roles.items():
        train, path = engines.train, ("engines", role, "train")
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
