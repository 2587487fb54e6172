"""vLLM on several ranks samples what it does on one, and each is given its part of new weights."""

import functools
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import attrs
import psutil
import pytest
import torch
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.engine import Request, Sampling, load
from flowrl.runtime.engines.vllm.process import import_vllm, quiet
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.model.weights import weights_of
from flowrl.runtime.ranks.agreement import RankMissingError
from flowrl.runtime.ranks.ranks import ALONE, among
from tests.runtime.families import FAMILIES, save
from tests.runtime.ray.ranked import here

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")

WIDE = {"hidden_size": 128, "head_dim": 32, "max_position_embeddings": 256, "vocab_size": 259}
LONG = [1, *range(3, 63), *range(3, 63), *range(3, 63)]
REQUESTS = [
    Request([1, 5, 9, 20, 33, 40, 12], seed=10, n=3),
    Request(LONG, seed=2**30, n=2),
    Request([*LONG[:150], 4], seed=30, n=1),
]
SAMPLINGS = [
    Sampling(0.8, max_tokens=10, min_tokens=2, stop=("a", "k"), stop_tokens=(9, 20)),
    Sampling(temperature=0, max_tokens=6),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that gives two folders of a model with heads as wide as vLLM's."""

    @functools.cache
    def folders(family):
        config = FAMILIES[family]()
        for name in WIDE.keys() & config.to_dict().keys():
            setattr(config, name, WIDE[name])
        first, second = (str(tmp_path_factory.mktemp(family)) for _ in range(2))
        model = load_model(ModelSpec(save(config, first)))
        for tensor in weights_of(model).values():
            tensor += 0.1 * torch.randn(tensor.shape)
        model.save_pretrained(second)
        return ModelSpec(first), ModelSpec(second)

    return folders


def start(spec, tokenizer, ranks):
    return load("generate", "vllm")(spec, tokenizer, ranks=ranks, kv_cache_gib=0.05)


def sampled(generator):
    return [generator.generate(REQUESTS, sampling) for sampling in SAMPLINGS]


def alone(specs, tokenizer):
    """Sample from models, each by an engine of its own on one rank."""
    return [sampled(start(spec, tokenizer, ALONE)) for spec in specs]


def walked(specs, tokenizer, size, packs):
    """Sample from a model, another that is loaded, and from both again, which come in parts.

    Prompts that begin alike are in the cache of what came before. Where vLLM packs nothing, as on
    GPUs, parts are written into its own tensors.
    """
    world = here()
    import_vllm()
    with quiet(), mock.patch("vllm._custom_ops._supports_onednn", packs):
        return _walked(specs, tokenizer, size, world, packs)


def _walked(specs, tokenizer, size, world, packs):
    replicas = [among(world, range(i, i + size)) for i in range(0, world.count, size)]
    first, second = (weights_of(load_model(spec)) for spec in specs)
    generator = start(specs[0], tokenizer, next(filter(None, replicas)))
    made = [sampled(generator)]
    generator.load(second, version=1)
    made.append(sampled(generator))
    for version, weights in ((2, first), (3, second)):
        for name, tensor in generator.stored().items():
            tensor.copy_(of(weights[name], generator.inbox.shards[name]))
        generator.renewed(version)
        made.append(sampled(generator))
    share = numbers(generator.stored()) / numbers(first)
    assert generator.inbox.direct != packs
    return made, generator.version, share


def numbers(weights):
    return sum(tensor.numel() for tensor in weights.values())


def of(whole, part):
    """Return a rank's part of a whole weight."""
    spans = part.spans or ((0, part.whole[part.dim]),)
    return torch.cat([whole.narrow(part.dim, a, b - a) for a, b in spans], part.dim)


def flat(made):
    return [one for times in made for groups in times for group in groups for one in group]


@pytest.mark.parametrize(
    ("count", "size", "family", "packs"),
    [
        (4, 2, "llama", True),
        (4, 4, "llama", True),
        (2, 2, "phi3", True),
        (2, 2, "llama", False),
        (2, 2, "phi3", False),
        (1, 1, "qwen2", False),
    ],
)
def test_ranks_sample_what_one_does(count, size, family, packs, on, folders, tokenizer):
    specs = folders(family)

    found = on(count, walked, specs, tokenizer, size, packs)

    (expected,) = on(1, alone, specs, tokenizer)
    made = [each for each, _, _ in found]
    assert made == [made[0]] * count
    for one, other in zip(flat(made[0]), flat(expected * 2), strict=True):
        assert (one.tokens, one.truncated) == (other.tokens, other.truncated)
        assert one.logprobs == pytest.approx(other.logprobs, rel=0, abs=1e-4)
    assert expected[0] != expected[1]
    assert [version for _, version, _ in found] == [3] * count
    assert max(share for _, _, share in found) < 1.3 / size


def left_alone(spec, tokenizer):
    """Sample on the first rank, for which the second doesn't come."""
    ranks = among(attrs.evolve(here(), timeout=30), range(2))
    generator = start(spec, tokenizer, ranks)
    if ranks.index == 1:
        return ""
    with pytest.raises(RankMissingError) as error:
        generator.generate(REQUESTS, SAMPLINGS[0])
    return str(error.value).replace(spec.path, "FOLDER")


def test_a_rank_that_does_not_come_ends_in_an_error(on, folders, tokenizer):
    found, _ = on(2, left_alone, folders("llama")[0], tokenizer)

    assert found == snapshot("""\
rank 0 of 2 waited at sampling 3 requests from FOLDER for the others, of which one ended or did not come within 30 s
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""")


def failing(spec, tokenizer):
    """Sample while the second rank fails at its third token; return how it ends."""
    generator = start(spec, tokenizer, among(attrs.evolve(here(), timeout=30), range(2)))
    executor = generator.llm.llm_engine.engine_core.engine_core.model_executor
    execute, steps = executor.execute_model, iter(range(3 if generator.ranks.index else 100))

    def counted(*args, **given):
        next(steps)
        return execute(*args, **given)

    executor.execute_model = counted
    with pytest.raises(EngineError) as error:
        generator.generate(REQUESTS, SAMPLINGS[1])
    return str(error.value).replace(spec.path, "FOLDER")


def test_a_rank_that_fails_while_it_samples_is_waited_for_as_long_as_ranks_are(
    on, folders, tokenizer
):
    found = on(2, failing, folders("llama")[0], tokenizer)

    assert found == snapshot(
        [
            """\
rank 0 of 2 waited at sampling 3 requests from FOLDER for the others, of which one ended or did not come within 30 s
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""",
            """\
vLLM failed: StopIteration: \n\
help: if it lacks memory, lower `gpu_memory_utilization` or `sequences_per_block`; engine = "hf" samples without it\
""",
        ]
    )


def refused(spec, tokenizer):
    generator = start(spec, tokenizer, here())
    found = []
    for wrong in (generator.lent, lambda: start(spec, tokenizer, ALONE)):
        with pytest.raises(EngineError) as error:
            wrong()
        found.append(str(error.value))
    return found


def test_ranks_lend_nothing_and_divide_all_models_of_a_process_alike(on, folders, tokenizer):
    first, second = on(2, refused, folders("llama")[0], tokenizer)

    assert (
        first
        == second
        == snapshot(
            [
                "2 ranks divide them",
                """\
vLLM divides models over 2 ranks in this process; got 1
help: give the models that sample in one pool the same `tp`, or pools of their own\
""",
            ]
        )
    )


def shared_files():
    """Return the files by which this process shares memory or talks, outside of Ray's folder."""
    memory = re.findall(r"/dev/shm/psm_\S+", Path("/proc/self/maps").read_text())
    sockets = (connection.laddr for connection in psutil.Process().net_connections("unix"))
    return {*memory, *(name for name in sockets if name and f"{os.sep}ray{os.sep}" not in name)}


def files_of_rank(spec, tokenizer):
    """Return the files that come with a vLLM."""
    before, generator = shared_files(), start(spec, tokenizer, here())
    generator.generate(REQUESTS, SAMPLINGS[0])
    return shared_files() - before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ranks_have_no_files_that_a_kill_would_leave_behind(on, folders, tokenizer):
    assert on(2, files_of_rank, folders("llama")[0], tokenizer) == [set(), set()]
