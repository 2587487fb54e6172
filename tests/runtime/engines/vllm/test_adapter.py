"""Adapters in vLLM: each version is sampled with, and is held against the trainer's."""

import attrs
import pytest
import torch
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.engine import Sampling
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.comparison import Comparison
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from tests.runtime.engines.vllm.test_generator import ONE, gap, here, start
from tests.train.conftest import make_model, make_tokenizer  # noqa: F401

THREE = Sampling(max_tokens=3)


@pytest.fixture(scope="module")
def spec(make_model):  # noqa: F811
    """Return a model with an adapter, whose heads are wide enough for vLLM."""
    folder = str(make_model(make_tokenizer(), hidden_size=64))
    return ModelSpec(folder, lora=Lora(rank=4, alpha=8.0))


@pytest.fixture(scope="module")
def adapted(spec):
    return start(spec)


@pytest.fixture
def trainer(spec):
    made = TorchTrainer(spec)
    shaken(made, seed=0)
    return made


def shaken(trainer, seed):
    """Give an adapter other weights; return them."""
    torch.manual_seed(seed)
    for weight in trainer.weights().values():
        torch.nn.init.normal_(weight.detach(), std=0.3)
    return trainer.weights()


def compared(generator, trainer):
    """Return what a comparison after the first samples finds."""
    comparison = Comparison(1)
    comparison.due(generator, "first")
    return comparison.figures("policy", generator, trainer, shared=False)


def told(generator, action):
    """Return the first line of an error, without what is called otherwise each time."""
    with pytest.raises(EngineError) as caught:
        action()
    text = str(caught.value).splitlines()[0].replace(generator.spec.path, "MODEL")
    now = generator.adapters.now
    return text.replace(now.lora_name, "adapter N") if now else text


@here
def test_each_version_of_an_adapter_is_sampled_with(adapted, trainer):
    gaps = []
    for version in range(3):
        adapted.load(shaken(trainer, version), version)
        (samples,) = adapted.generate(ONE, Sampling(max_tokens=20))
        gaps.append((gap(trainer, samples) < 1e-4, gap(trainer.base(), samples) > 0.1))

    assert gaps == [(True, True)] * 3
    assert adapted.version == 2
    assert adapted.stored().keys() == trainer.weights().keys()


@here
@pytest.mark.parametrize(
    ("dtype", "lora"), [("bfloat16", Lora(3, 7.0)), ("float32", Lora(16, 0.7))]
)
def test_all_its_matrices_are_compared_to_the_bit(spec, dtype, lora):
    spec = attrs.evolve(spec, dtype=dtype, lora=lora)
    generator, trainer = start(spec), TorchTrainer(spec)
    generator.load(shaken(trainer, seed=1), 1)

    found = compared(generator, trainer)

    expected = {"weights_compared": len(trainer.weights()), "weights_shared": 0, "cache_version": 1}
    assert found == {f"policy/{name}": x for name, x in expected.items()}
    assert len(trainer.weights()) == 2 * 7 * 2


@here
@pytest.mark.parametrize("layer", ["self_attn.v_proj", "mlp.up_proj", "mlp.down_proj"])
@pytest.mark.parametrize("kind", ["A", "B"])
def test_a_number_that_is_altered_in_vllm_is_found(adapted, trainer, layer, kind):
    name = f"model.layers.1.{layer}.lora_{kind}.default.weight"
    adapted.load(trainer.weights(), 1)
    adapted.held()[name][-1, -1] *= 1.01

    text = told(adapted, lambda: compared(adapted, trainer))

    size = trainer.weights()[name].numel()
    assert text.endswith(f"weights that train: `{name}` differs in 1 of {size} elements")


@here
def test_an_adapter_of_the_version_before_is_found(adapted, trainer):
    adapted.load(trainer.weights(), 1)
    shaken(trainer, seed=2)

    assert told(adapted, lambda: compared(adapted, trainer)) == snapshot(
        "`policy` is not sampled from with the weights that train: `model.layers.0.self_attn.q_proj.lora_A.default.weight` differs in 256 of 256 elements, as do 27 more"
    )


@here
def test_an_adapter_that_is_not_there_is_told(spec, adapted, trainer, monkeypatch):
    bare = start(spec)
    adapted.load(trainer.weights(), 1)
    asked = told(bare, bare.held)
    monkeypatch.setattr(adapted.adapters, "ready", lambda: None)
    unasked = told(adapted, lambda: adapted.generate(ONE, THREE))
    monkeypatch.undo()
    adapted.llm.llm_engine.remove_lora(adapted.adapters.now.lora_int_id)

    lost = [told(adapted, act) for act in (adapted.held, lambda: adapted.generate(ONE, THREE))]

    assert [asked, unasked, *lost] == snapshot(
        [
            "vLLM has no adapter on `MODEL`: it samples from the base",
            "vLLM was not asked for `adapter N` on `MODEL`: it has sampled from the base",
            "vLLM has no `adapter N` on `MODEL`: it samples from the base",
            "vLLM has lost `adapter N` on `MODEL`: it would sample from the base",
        ]
    )


@here
def test_an_adapter_of_too_high_a_rank_is_refused(spec):
    with pytest.raises(EngineError) as caught:
        start(attrs.evolve(spec, lora=Lora(rank=600)))

    assert str(caught.value) == snapshot("""\
vLLM takes adapters of rank 512 at most; got 600
help: take a lower rank, or engine = "hf"\
""")
