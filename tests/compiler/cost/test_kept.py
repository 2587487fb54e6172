"""What real trainers keep is what is predicted, to the byte; and what is kept where."""

import attrs
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from flowrl.compiler.cost.kept import Kept
from flowrl.compiler.cost.memory import memory
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.shapes import AdapterShape, ModelShape, known_shape
from flowrl.compiler.tasks import Seat
from flowrl.ir.layout import Layout
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from tests.compiler.cost.targets import target, task

TRAIN, SCORE, GENERATE = (Seat("policy", use) for use in ("train", "score", "generate"))
SEVEN, SMALL = known_shape("qwen2.5-7b"), known_shape("smollm2-135m")
WIDTHS = {"float32": {"weight_bytes": 4, "master_bytes": 0}, "bfloat16": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = transformers.Qwen2Config(
        **{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
    )
    made = str(tmp_path_factory.mktemp("qwen2"))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(made)
    return made


def kept(shape, adapter=None, layout="1", **how):
    parsed = Layout.parse(layout)
    its = attrs.evolve(target(**how), adapters={"policy": adapter} if adapter else {})
    return Kept.of(Rank.of("update", "policy", shape, parsed, range(parsed.size), its))


def held(tensors):
    """Bytes of tensors, storages that several share once."""
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


def updated(trainer):
    """Take a step of no meaning; return the gradients that it had."""
    with torch.autocast("cpu", torch.bfloat16, enabled=trainer.spec.dtype == "bfloat16"):
        trainer.model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    gradients = [x.grad for x in trainer.trained]
    trainer.optimizer.step()
    return gradients


def moments(trainer):
    return [x for state in trainer.optimizer.state.values() for x in state.values() if x.dim()]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_an_adapter_alone_has_gradients_and_moments(folder, dtype):
    shape = ModelShape.from_folder(folder)
    trainer = TorchTrainer(ModelSpec(folder, dtype=dtype, lora=Lora(rank=4)))

    gradients = updated(trainer)

    expected = kept(shape, AdapterShape.beside(shape, 4), **WIDTHS[dtype])
    vectors = sum(p.count for p in shape.parameters() if len(p.shape) == 1)
    wider = 2 * vectors if dtype == "bfloat16" else 0  # `widen` takes norms and biases to float32
    assert held(trainer.model.parameters()) == expected.weights + wider
    assert held(gradients) == expected.gradients
    assert held(moments(trainer)) == expected.moments
    assert expected.masters == 0


def test_weights_that_an_engine_lends_have_masters_behind_them(folder):
    shape, spec = ModelShape.from_folder(folder), ModelSpec(folder, dtype="bfloat16")
    engine, trainer = HFGenerator(spec, None), TorchTrainer(spec)
    trainer.share(engine.lent())

    gradients = updated(trainer)

    expected = kept(shape)
    weights = [*engine.model.parameters(), *trainer.model.parameters()]
    assert held(weights) == expected.weights == 2 * shape.count  # once for both
    assert held(trainer.masters.named.values()) == expected.masters == 4 * shape.count
    assert held(gradients) == expected.gradients == 4 * shape.count
    assert held(moments(trainer)) == expected.moments == 8 * shape.count
    assert not any(parameter.grad is not None for parameter in trainer.model.parameters())


@pytest.mark.parametrize(
    ("narrow", "widths"),
    [
        ("none", {"weight_bytes": 4}),  # it follows another model
        ("linear", {"weight_bytes": 2, "table_bytes": 4}),
        ("all", {"weight_bytes": 2}),
    ],
)
def test_what_is_run_forward_alone_takes_what_is_predicted(folder, narrow, widths):
    scorer = TorchScorer(ModelSpec(folder, dtype="bfloat16", narrow=narrow))

    predicted = memory(
        SCORE, ModelShape.from_folder(folder), Layout(), range(1), target(**widths)
    ).weights

    assert held(scorer.model.parameters()) == predicted


def test_a_frozen_model_takes_half_the_memory_and_half_the_way():
    frozen, wide = ({"weight_bytes": n, "table_bytes": 4} for n in (2, 4))

    half, whole = (memory(SCORE, SEVEN, Layout(), range(1), target(**n)) for n in (frozen, wide))
    near, far = (
        spent("logprobs", layout="fsdp8", machines="2x4xH100", microbatch_tokens=1024, **n).network
        for n in (frozen, wide)
    )

    tables = 152_064 * 3_584
    norms = 3_584 * (2 * 28 + 1)
    assert half.weights == 2 * SEVEN.count + 2 * (tables + norms)
    assert whole.weights == 4 * SEVEN.count
    assert near < 0.6 * far


def test_narrow_gradients_pass_one_parameter_at_a_time(folder):
    shape, spec = ModelShape.from_folder(folder), ModelSpec(folder, dtype="bfloat16")
    engine, trainer = HFGenerator(spec, None), TorchTrainer(spec)
    trainer.share(engine.lent())
    passing = []
    for parameter in trainer.masters.parameters.values():
        parameter.register_post_accumulate_grad_hook(
            lambda _: passing.append(
                held(p.grad for p in trainer.model.parameters() if p.grad is not None)
            )
        )
        parameter.register_hook(lambda gradient: passing.append(held([gradient])))

    updated(trainer)

    largest = max(parameter.count for parameter in shape.parameters())
    narrow, wide = (
        memory(TRAIN, shape, Layout(), range(1), target(**how)).buffers
        for how in ({}, WIDTHS["float32"])
    )
    assert max(passing) == 2 * largest
    assert narrow - wide == pytest.approx(1.3 * 2 * largest, abs=1)


adapters = st.builds(
    AdapterShape.beside,
    st.sampled_from([SEVEN, SMALL]),
    st.sampled_from([1, 8, 64]),
    st.sampled_from(["all-linear", ("q_proj", "v_proj")]),
)
layouts = st.sampled_from(["1", "dp2", "fsdp2", "fsdp4 x dp2"])
settings = st.builds(
    dict,
    checkpointing=st.booleans(),
    compiled=st.booleans(),
    microbatch_tokens=st.sampled_from([2048, 16384]),
)


def memory_of(adapter, text, seat, adapts, **how):
    layout, base = Layout.parse(text), known(adapter)
    its = attrs.evolve(target(**how), adapters={"policy": adapter} if adapts else {})
    return memory(seat, base, layout, range(layout.size), its, 64)


def known(adapter):
    return ModelShape(adapter.family, adapter.head, adapter.dimensions)


@given(adapters, layouts, settings)
def test_an_adapter_never_takes_more_memory_than_training_all(adapter, layout, how):
    one, whole = (memory_of(adapter, layout, TRAIN, adapts, **how) for adapts in (True, False))

    assert one.total < whole.total
    assert one.gradients < whole.gradients
    assert one.optimizer < whole.optimizer


@given(adapters, st.sampled_from(["1", "fsdp4"]))
def test_what_samples_has_the_base_and_the_adapter(adapter, layout):
    one, whole = (memory_of(adapter, layout, GENERATE, adapts) for adapts in (True, False))

    assert one.weights - whole.weights == pytest.approx(4 * adapter.count / (4 ** (layout != "1")))
    assert one.leaves("drop") == one.fixed == whole.weights  # the base is brought by nobody
    assert whole.leaves("drop") == 0


@given(adapters, layouts, settings, st.booleans(), st.sampled_from(["optimizer", "all"]))
def test_offload_never_takes_more_memory_of_a_gpu(adapter, layout, how, adapts, offload):
    activations = how["checkpointing"]
    plain = memory_of(adapter, layout, TRAIN, adapts, **how)

    less = memory_of(
        adapter, layout, TRAIN, adapts, offload=offload, offload_activations=activations, **how
    )

    assert less.total <= plain.total
    assert less.asleep("resident").total <= plain.asleep("resident").total
    assert less.host("resident") >= plain.host("resident") == 0


def test_moments_are_on_the_gpu_for_a_step_alone():
    few, many = (
        memory(TRAIN, SEVEN, Layout(), range(1), target(microbatch_tokens=n, offload="optimizer"))
        for n in (1024, 65536)
    )

    assert few.buffers == few.waiting == 8 * SEVEN.count  # a step takes more than a pass
    assert few.activations == 0
    assert many.buffers < 8 * SEVEN.count < many.activations  # and here less
    assert few.optimizer == many.optimizer == 4 * SEVEN.count  # masters


def test_of_what_is_offloaded_whole_a_layer_is_on_the_gpu():
    whole, its = target(checkpointing=True), target(checkpointing=True, offload="all")
    trained = memory(TRAIN, SEVEN, Layout(fsdp=8), range(8), its)
    alone = memory(TRAIN, SEVEN, Layout(), range(1), its)
    scored = memory(SCORE, SEVEN, Layout(fsdp=8), range(8), its)

    assert trained.weights == trained.gradients == trained.optimizer == scored.weights == 0
    assert trained.waiting == pytest.approx((4 + 4 + 8) * SEVEN.count / 8)
    assert scored.waiting == pytest.approx(2 * SEVEN.count / 8)
    assert alone == memory(TRAIN, SEVEN, Layout(), range(1), whole)  # nothing gathers it


def test_inputs_of_layers_wait_on_the_host_but_for_one():
    how = {"checkpointing": True, "microbatch_tokens": 1000}
    plain, less = (
        memory(TRAIN, SEVEN, Layout(), range(1), target(**how, offload_activations=off))
        for off in (False, True)
    )

    assert less.waiting == plain.activations - less.activations == 1000 * 27 * 2 * 3584


def spent(kind, shape=SEVEN, layout="1", adapter=None, **how):
    parsed = Layout.parse(layout)
    its = attrs.evolve(target(**how), adapters={"policy": adapter} if adapter else {})
    return seconds(task(kind, 512), shape, parsed, range(parsed.size), its)


def test_seconds_over_the_host_link():
    link, update = 0.85 * 64e9, spent("update", checkpointing=True)
    offloaded = spent("update", checkpointing=True, offload="optimizer")
    activations = spent("update", checkpointing=True, offload_activations=True)

    assert offloaded.network - update.network == pytest.approx(2 * 8 * SEVEN.count / link)
    tokens = 512 * 856
    assert activations.network - update.network == pytest.approx(2 * tokens * 28 * 2 * 3584 / link)
    assert offloaded.compute == activations.compute == update.compute


def test_weights_that_come_from_the_host_hide_behind_large_microbatches():
    small, large = (
        spent("update", layout="fsdp8", offload="all", microbatch_tokens=n).network
        - spent("update", layout="fsdp8", microbatch_tokens=n).network
        for n in (1024, 16384)
    )

    assert 0 < large < small / 10


def test_the_seconds_of_an_adapters_update():
    adapter = AdapterShape.beside(SEVEN, 16)

    one, whole = (spent("update", adapter=its) for its in (adapter, None))

    tokens, rate = 512 * 856, 0.8 * 989e12
    fixed = tokens * SEVEN.body_flops + 512 * 600 * SEVEN.head_flops
    beside = 3 * tokens * 2 * adapter.count
    assert whole.compute - one.compute == pytest.approx((fixed - beside) / rate)
    assert (one.memory, whole.memory) == pytest.approx((31.6, 19.7), abs=0.05)  # more kernels


@pytest.mark.parametrize("kind", ["generate", "logprobs", "update", "snapshot"])
def test_seconds_of_an_adapter_hang_on_its_rank(kind):
    low, high = (spent(kind, adapter=AdapterShape.beside(SEVEN, rank)) for rank in (8, 64))

    assert low.seconds < high.seconds


def test_the_base_under_an_adapter_scores_without_it():
    its = attrs.evolve(target(), adapters={"policy": AdapterShape.beside(SEVEN, 16)})
    base = attrs.evolve(task("logprobs", 512), base="reference")

    alone = seconds(base, SEVEN, Layout(), range(1), its)

    assert alone == spent("logprobs")
    assert alone.seconds < seconds(task("logprobs", 512), SEVEN, Layout(), range(1), its).seconds
