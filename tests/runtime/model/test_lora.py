"""Adapters: what they are put on, what they leave as it is, how they are saved."""

import sys

import pytest
import torch
from inline_snapshot import snapshot
from peft import PeftModel
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Request, Sampling, Sequences
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.heads import head_module
from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.runtime.training.schedule import TrainerOptions
from tests.runtime.engines.losses import PLAIN, losses

LORA = Lora(rank=4, alpha=8.0)


def trainer_of(folder, dtype="float32", lora=LORA, head=None, **options):
    spec = ModelSpec(folder, dtype=dtype, lora=lora)
    return TorchTrainer(spec, TrainerOptions(**(PLAIN | options)), head=head)


def train(trainer, batch, steps=2, outputs=("logprobs", "entropy")):
    loss, _ = losses(batch)["batch statistic"]
    return [trainer.update(batch, outputs, 1.0, loss, step) for step in range(steps)]


def logprobs(scorer, batch):
    return scorer.forward(batch, ["logprobs"], 1.0)["logprobs"]


@pytest.fixture
def halved(model_folder, tmp_path):
    """Return a function that saves a model in bfloat16."""

    def save(name):
        model = AutoModelForCausalLM.from_pretrained(model_folder(name), dtype=torch.bfloat16)
        model.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return save


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_base_stays_as_it_is_to_the_bit(halved, batch, architecture, dtype):
    folder = halved(architecture)
    alone = logprobs(TorchScorer(ModelSpec(folder, dtype=dtype)), batch)
    trainer = trainer_of(folder, dtype)

    at_first = logprobs(trainer, batch)
    train(trainer, batch)

    assert_close(at_first, alone, rtol=0, atol=0)
    assert_close(logprobs(trainer.base(), batch), alone, rtol=0, atol=0)
    assert (logprobs(trainer, batch) - alone).abs().max() > 1e-3


def test_a_base_is_in_its_own_dtype_and_adapters_in_float32(halved, batch):
    trainer = trainer_of(halved("llama"), "bfloat16", head="lm+value")

    train(trainer, batch)

    kinds = {name: x.dtype for name, x in trainer.model.named_parameters() if x.dim() > 1}
    own = {name for name, kind in kinds.items() if kind == torch.float32}
    assert own == {n for n in trainer.weights() if n != "value_head.bias"}
    assert set(kinds.values()) == {torch.float32, torch.bfloat16}
    assert {"value_head.weight", "value_head.bias"} < trainer.weights().keys()
    (group,) = trainer.optimizer.param_groups
    assert len(group["params"]) == len(trainer.weights())


def test_only_what_it_trains_is_its_state(model_folder, batch):
    trainer, other = (trainer_of(model_folder("llama"), "float64") for _ in range(2))
    train(trainer, batch)
    state = trainer.state_dict()

    other.load_state_dict(state)

    assert state["weights"].keys() == trainer.weights().keys()
    again = [train(each, batch, steps=1)[0].stats for each in (trainer, other)]
    assert again[0] == again[1]
    assert_close(trainer.weights(), other.weights(), rtol=0, atol=0)


def test_states_in_shards_hold_adapters_alone(model_folder, batch, tmp_path):
    trainer, other = (trainer_of(model_folder("llama"), "float64") for _ in range(2))
    train(trainer, batch)
    trainer.save_sharded(str(tmp_path / "state"))

    other.load_sharded(str(tmp_path / "state"))

    train(trainer, batch, steps=1)
    train(other, batch, steps=1)
    assert_close(trainer.weights(), other.weights(), rtol=0, atol=0)


def test_checkpointed_layers_give_adapters_the_same_gradient(model_folder, batch):
    after = []
    for on in (False, True):
        trainer = trainer_of(model_folder("llama"), "float64", checkpointing=on)
        train(trainer, batch)
        after.append(trainer.weights())

    assert_close(after[0], after[1], rtol=0, atol=1e-12)


def test_a_snapshot_shares_the_base_and_keeps_the_adapter(model_folder, batch):
    trainer = trainer_of(model_folder("llama"))
    train(trainer, batch, steps=1)
    before = logprobs(trainer, batch)

    copy = trainer.snapshot()
    train(trainer, batch, steps=1)

    assert_close(logprobs(copy, batch), before, rtol=0, atol=0)
    assert not torch.equal(logprobs(trainer, batch), before)
    own = {x.data_ptr() for x in copy.model.parameters()}
    shared = own & {x.data_ptr() for x in trainer.model.parameters()}
    assert len(own - shared) == len(copy.weights())


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_it_is_saved_merged_and_as_peft_loads_it(model_folder, batch, tmp_path, architecture):
    trainer = trainer_of(model_folder(architecture), "float64", head="lm+value")
    train(trainer, batch, outputs=("logprobs", "entropy", "values"))
    expected = logprobs(trainer, batch)

    trainer.save(str(tmp_path / "out"))

    merged = trainer_of(str(tmp_path / "out"), "float64", lora=None, head="lm+value")
    assert_close(logprobs(merged, batch), expected, rtol=0, atol=1e-12)
    base = AutoModelForCausalLM.from_pretrained(model_folder(architecture), dtype=torch.float64)
    by_peft = PeftModel.from_pretrained(base, str(tmp_path / "out" / "adapter")).base_model.model
    spec = ModelSpec(model_folder(architecture), dtype="float64")
    assert_close(logprobs(TorchScorer(spec, model=by_peft), batch), expected, rtol=0, atol=1e-12)


def test_a_critic_saves_its_head_with_its_adapter(model_folder, batch, tmp_path):
    trainer = trainer_of(model_folder("llama"), "float64", head="reward")
    with torch.no_grad():
        for weight in trainer.weights().values():
            torch.nn.init.normal_(weight)
    expected = trainer.forward(batch, ["rewards"], 1.0)["rewards"]

    trainer.save(str(tmp_path / "out"))

    merged = TorchScorer(ModelSpec(str(tmp_path / "out"), dtype="float64", head="reward"))
    assert_close(merged.forward(batch, ["rewards"], 1.0)["rewards"], expected, rtol=0, atol=1e-12)
    base = AutoModelForSequenceClassification.from_pretrained(
        model_folder("llama"), dtype=torch.float64, num_labels=1
    )
    by_peft = PeftModel.from_pretrained(base, str(tmp_path / "out" / "adapter"))
    head = head_module(by_peft.base_model.model).modules_to_save["default"]
    assert_close(head.weight, trainer.weights()["score.weight"])


@pytest.mark.parametrize(("dtype", "exact"), [("float64", 1e-12), ("bfloat16", 0.1)])
def test_a_generator_adds_the_adapter_that_it_gets_to_its_base(halved, tokenizer, dtype, exact):
    trainer = trainer_of(halved("llama"), dtype)
    sampler = HFGenerator(trainer.spec, tokenizer)
    with torch.no_grad():
        for weight in trainer.weights().values():
            torch.nn.init.normal_(weight, std=0.3)

    sampler.load(trainer.weights(), 2)

    request = Request([1, 5, 9], seed=0, n=40)
    (samples,) = sampler.generate([request], Sampling(max_tokens=6))
    read = Sequences(
        Ragged.of_rows([request.prompt] * 40, torch.int64),
        Ragged.of_rows([one.tokens for one in samples], torch.int64),
    )
    said = torch.tensor([x for one in samples for x in one.logprobs], dtype=torch.float64)
    assert_close(logprobs(trainer, read).double(), said, rtol=0, atol=exact)
    assert (logprobs(trainer.base(), read).double() - said).abs().max() > 3 * exact
    assert sampler.stored().keys() == trainer.weights().keys()
    assert sampler.version == 2


def test_ranks_that_would_divide_layers_with_adapters_are_told(model_folder, tokenizer):
    spec = ModelSpec(model_folder("llama"), lora=LORA)

    with pytest.raises(EngineError) as caught:
        HFGenerator(spec, tokenizer, Ranks(0, 2))

    assert str(caught.value).replace(spec.path, "MODEL") == snapshot("""\
2 ranks are to divide `MODEL`, which has an adapter: that needs whole layers
help: take a layout without tp\
""")


def test_peft_is_asked_for(model_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)

    with pytest.raises(EngineError) as caught:
        load_model(ModelSpec(model_folder("llama"), lora=LORA))

    assert str(caught.value) == snapshot("""\
adapters are made by peft, which is not installed
help: pip install "flowrl[lora]"\
""")


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (
            ("q_proj", "k_prj"),
            snapshot("""\
a LlamaForCausalLM has no linear layers `k_prj` for adapters (did you mean `k_proj`?)
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
"""),
        ),
        (
            "lm_head",
            snapshot("""\
a LlamaForCausalLM has no linear layers `lm_head` for adapters
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
"""),
        ),
        (
            "embed_tokens",
            snapshot("""\
a LlamaForCausalLM has no linear layers `embed_tokens` for adapters
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
"""),
        ),
    ],
)
def test_layers_that_are_not_there_are_told(model_folder, targets, expected):
    with pytest.raises(EngineError) as caught:
        load_model(ModelSpec(model_folder("llama"), lora=Lora(targets=targets)))

    assert str(caught.value) == expected


def test_the_seed_makes_the_adapter_and_changes_no_other_draw(model_folder):
    def loaded(seed):
        torch.manual_seed(5)
        model = load_model(ModelSpec(model_folder("llama"), lora=Lora(seed=seed)))
        return model.model.layers[0].mlp.up_proj.lora_A["default"].weight, torch.rand(3)

    (one, first), (same, second), (other, _) = loaded(1), loaded(1), loaded(2)

    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(first, second)


def test_an_adapter_of_no_layer_is_refused():
    with pytest.raises(EngineError) as error:
        Lora(targets=())

    assert str(error.value) == snapshot("""\
`targets` of an adapter must name a layer; got ()
help: targets = "all-linear" takes all linear layers but heads\
""")
