import pytest
import torch
import transformers
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.training.schedule import ForwardOptions
from tests.runtime.engines.losses import (
    losses,
    trainer_of,
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_trainer_goes_on_bit_for_bit(model_folder, batch, dtype):
    loss, outputs = losses(batch)["token mean"]
    options = {"schedule": "cosine", "total_steps": 6, "warmup_steps": 2, "eps": 1e-8}
    straight = trainer_of(model_folder("llama"), dtype, **options)
    for step in range(3):
        straight.update(batch, outputs, 1.0, loss, step)
    state = straight.state_dict()
    resumed = trainer_of(model_folder("llama"), dtype, **options)
    aliased = resumed.weights()

    resumed.load_state_dict(state)
    for step in range(3, 6):
        want = straight.update(batch, outputs, 1.0, loss, step)
        got = resumed.update(batch, outputs, 1.0, loss, step)

        assert got.stats == want.stats
    assert_close(resumed.state_dict(), straight.state_dict(), rtol=0, atol=0)
    assert_close(aliased, straight.weights(), rtol=0, atol=0)  # the weights changed in place


def test_a_state_of_another_model_is_refused(model_folder):
    trainer = trainer_of(model_folder("llama"))
    state = trainer.state_dict()
    del state["weights"]["model.norm.weight"]

    with pytest.raises(EngineError) as error:
        trainer.load_state_dict(state)

    assert str(error.value) == snapshot("""\
LlamaForCausalLM was not given its tensor `model.norm.weight`
help: load weights of the same model\
""")


def test_bfloat16_keeps_small_updates_in_float32_weights(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), "bfloat16", learning_rate=1e-7, eps=1e-8)
    before = trainer.state_dict()["weights"]

    done = trainer.update(batch, outputs, 1.0, loss, step=0)

    exact = trainer_of(model_folder("llama"), "float32").forward(batch, outputs, 1.0)
    assert done.new["logprobs"].dtype == torch.float32
    assert_close(done.new["logprobs"], exact["logprobs"], rtol=0.05, atol=0.1)
    assert not torch.equal(done.new["logprobs"], exact["logprobs"])
    for name, weight in trainer.weights().items():
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, before[name])


def test_a_step_in_bfloat16_is_near_that_in_float32(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    moves, norms = {}, {}
    for dtype in ("float32", "bfloat16"):
        trainer = trainer_of(model_folder("llama"), dtype)
        before = trainer.state_dict()["weights"]
        norms[dtype] = trainer.update(batch, outputs, 1.0, loss, step=0).stats["grad_norm"]
        moved = [(w - before[name]).flatten() for name, w in trainer.weights().items()]
        moves[dtype] = torch.cat(moved)

    error = (moves["bfloat16"] - moves["float32"]).norm() / moves["float32"].norm()
    assert 0 < error < 0.03  # a bfloat16 has 8 bits: 2**-8 of each product, over two layers
    assert norms["bfloat16"] == pytest.approx(norms["float32"], rel=0.02)


def test_steps_that_bfloat16_cannot_hold_add_up_in_float32(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), "bfloat16", learning_rate=1e-6, eps=1e-8)
    start = {name: weight.clone() for name, weight in trainer.weights().items()}
    large = {name: weight.abs() > 0.1 for name, weight in start.items()}

    for step in range(3):
        trainer.update(batch, outputs, 1.0, loss, step)

    for name, weight in trainer.weights().items():
        moved = (weight - start[name])[large[name]].abs()
        assert 2e-6 < moved.max() < 4e-6  # three steps of about the learning rate
        assert moved.max() < 0.1 * 2**-9  # the least that a bfloat16 of 0.1 can move


def test_a_frozen_copy_scores_as_the_trainer_does(model_folder, batch):
    for dtype in ("float32", "bfloat16"):
        spec = ModelSpec(model_folder("llama"), dtype=dtype)

        trained = TorchTrainer(spec).forward(batch, ["logprobs", "entropy"], 0.6)
        frozen = TorchScorer(spec).forward(batch, ["logprobs", "entropy"], 0.6)

        assert torch.equal(frozen["logprobs"], trained["logprobs"])
        assert torch.equal(frozen["entropy"], trained["entropy"])


def test_a_snapshot_stays_where_it_was_taken(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"))
    before = trainer.forward(batch, outputs, 1.0)["logprobs"]

    copy = trainer.snapshot()
    trainer.update(batch, outputs, 1.0, loss, step=0)

    assert torch.equal(copy.forward(batch, outputs, 1.0)["logprobs"], before)
    assert not torch.equal(trainer.forward(batch, outputs, 1.0)["logprobs"], before)
    assert copy.weights().keys() == trainer.weights().keys()
    assert not any(weight.requires_grad for weight in copy.model.parameters())


def test_a_saved_model_loads_in_transformers(model_folder, batch, tmp_path, capfd):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), "float32")
    trainer.update(batch, outputs, 1.0, loss, step=0)
    capfd.readouterr()

    trainer.save(str(tmp_path))

    assert capfd.readouterr() == ("", "")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    for name, weight in trainer.weights().items():
        assert torch.equal(model.state_dict()[name], weight)


def test_a_model_that_cannot_be_packed_is_padded_or_refused(model_folder, batch):
    spec = ModelSpec(model_folder("bloom"), dtype="float64")
    lengths = batch.tokens.lengths[0].tolist()
    scorer = TorchScorer(spec)
    alone = []
    for context, tokens in zip(batch.context.rows(), batch.tokens.rows(), strict=True):
        with torch.no_grad():
            logits = scorer.model(torch.cat([context, tokens])[None]).logits[0]
        alone.append(
            logits[len(context) - 1 : -1].log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        )

    got = scorer.forward(batch, ["logprobs"], 1.0)["logprobs"].split(lengths)
    with pytest.raises(EngineError) as error:
        TorchScorer(spec, ForwardOptions(packing="packed"), role="reference")

    for row, expected in zip(got, alone, strict=True):
        assert_close(row, expected, rtol=0, atol=1e-10)
    assert str(error.value) == snapshot("""\
reference: a BloomForCausalLM lets packed rows see each other
help: leave packing out, or set packing = "padded"\
""")
