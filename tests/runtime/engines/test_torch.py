import math
from functools import partial
from unittest import mock

import attrs
import pytest
import torch
from inline_snapshot import snapshot
from torch._dynamo.utils import counters
from torch.autograd.graph import save_on_cpu
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.kernels import register
from flowrl.runtime.model.layers import compile_layers
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.rows.places import take_rows
from flowrl.runtime.training.schedule import TrainerOptions
from tests.runtime.engines.losses import (
    PLAIN,
    Constant,
    TokenMean,
    losses,
    trainer_of,
)


@pytest.mark.parametrize(
    "name", ["token mean", "token mean in two passes", "pairs", "batch statistic"]
)
@pytest.mark.parametrize(
    ("architecture", "exact"),
    [("llama", 1e-12), ("gpt2", 1e-12), ("gemma2", 1e-7)],  # Gemma's norms are float32 always
)
def test_a_gradient_is_the_same_for_every_budget_and_packing(
    model_folder, batch, architecture, exact, name
):
    loss, outputs = losses(batch)[name]

    def updated(budget, packing):
        trainer = trainer_of(
            model_folder(architecture), tokens_per_microbatch=budget, packing=packing
        )
        done = trainer.update(batch, outputs, 0.8, loss, step=0)
        return done, trainer.weights()

    first, weights = updated(10**6, "padded")

    microbatches = set()
    for budget in (1, 12, 25, 10**6):
        for packing in ("packed", "padded"):
            again, others = updated(budget, packing)
            microbatches.add(again.stats["microbatches"])
            assert again.stats["loss"] == pytest.approx(first.stats["loss"], rel=1e-12)
            assert again.stats["grad_norm"] == pytest.approx(first.stats["grad_norm"], rel=exact)
            assert_close(again.new, first.new, rtol=0, atol=1e-12)
            assert_close(others, weights, rtol=0, atol=exact)
    assert {1, 7} < microbatches


def test_two_passes_give_the_gradient_of_one(model_folder, batch):
    after = []
    for name in ("token mean", "token mean in two passes"):
        loss, outputs = losses(batch)[name]
        trainer = trainer_of(model_folder("llama"), tokens_per_microbatch=12)
        trainer.update(batch, outputs, 1.0, loss, step=0)
        after.append(trainer.weights())

    assert_close(after[0], after[1], rtol=0, atol=1e-12)


def test_a_frozen_copy_attends_as_what_is_trained(model_folder, batch):
    trainer = trainer_of(model_folder("llama"), packing="packed")
    trainer.model.set_attn_implementation(register("plain"))

    copy = trainer.snapshot()

    found = [each.forward(batch, ["logprobs"], 1.0) for each in (copy, trainer)]
    assert_close(found[0], found[1], rtol=0, atol=0)
    assert copy.model.config._attn_implementation == "packed_plain"


def some_of(batch, rows):
    """Return some rows of a batch."""
    rows = torch.tensor(rows)
    return Sequences(take_rows(batch.context, rows), take_rows(batch.tokens, rows))


@pytest.mark.filterwarnings("ignore")  # torch warns itself as it compiles
@pytest.mark.parametrize("options", [{"packing": "packed"}, {"checkpointing": True}])
def test_compiled_layers_give_the_same_and_are_compiled_once(
    model_folder, batch, options, monkeypatch
):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    names = ("token mean", "token mean in two passes", "batch statistic")
    rows = [batch, some_of(batch, [0, 2, 4]), some_of(batch, [1, 5])]
    torch.compiler.reset()
    counters.clear()
    after, graphs = [], counters["stats"]
    for on in (False, True):
        trainer = trainer_of(model_folder("llama"), compile=on, **options)
        for step, (name, some) in enumerate(zip(names, rows, strict=True)):
            loss, outputs = losses(some)[name]
            trainer.update(some, outputs, 1.0, loss, step)
        copy = trainer.snapshot()
        trainer.update(some, outputs, 1.0, loss, step + 1)
        after.append([copy.forward(batch, outputs, 1.0), trainer.weights()])

    assert_close(after[1], after[0], rtol=0, atol=1e-12)
    # Layers with gradients, without, and of what has none; two sets of outputs, with and without.
    assert graphs["unique_graphs"] == 3 + 4


def test_a_model_without_layers_is_not_compiled(model_folder):
    scorer = TorchScorer(ModelSpec(model_folder("llama")))
    scorer.model._no_split_modules = None

    with pytest.raises(EngineError) as error:
        compile_layers(scorer.model, "policy")

    assert str(error.value) == snapshot("""\
policy: transformers names no layers in a LlamaForCausalLM to compile
help: leave `compile` out\
""")


def test_checkpointed_layers_run_again_and_give_the_same(model_folder, batch):
    loss, outputs = losses(batch)["batch statistic"]
    after, runs = [], []
    for on in (False, True):
        trainer = trainer_of(model_folder("llama"), checkpointing=on)
        runs.append([])
        trainer.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs[-1].append(1))
        trainer.update(batch, outputs, 1.0, loss, step=0)
        after.append(trainer.weights())

    assert_close(after[1], after[0], rtol=0, atol=1e-12)
    assert list(map(len, runs)) == [2, 3]  # two passes; the second runs again


@pytest.mark.parametrize(
    "offload",
    [{"offload_optimizer": True}, {"checkpointing": True, "offload_activations": True}],
)
def test_what_waits_in_host_memory_changes_no_bit(model_folder, batch, offload):
    loss, outputs = losses(batch)["batch statistic"]
    plain, other = [trainer_of(model_folder("llama"), **how) for how in ({}, offload)]

    for step in range(2):
        plain.update(batch, outputs, 1.0, loss, step)
        other.update(batch, outputs, 1.0, loss, step)
    other.load_state_dict(other.state_dict())
    for trainer in (plain, other):
        trainer.update(batch, outputs, 1.0, loss, 2)

    assert_close(other.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_checkpointed_layers_keep_their_input_in_host_memory(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), checkpointing=True, offload_activations=True)
    kept = []

    class Watched(save_on_cpu):
        def __init__(self, **how):
            super().__init__(**how)
            pack = self.pack_hook
            self.pack_hook = lambda x: kept.append(tuple(x.shape)) or pack(x)

    with mock.patch("flowrl.runtime.model.layers.save_on_cpu", Watched):
        trainer.update(batch, outputs, 1.0, loss, step=0)

    rows, width = len(batch), int((batch.context.lengths[0] + batch.tokens.lengths[0]).max())
    assert kept.count((rows, width, 16)) == len(kept) == 2  # one of each layer


def test_an_update_lowers_the_loss_and_new_is_what_forward_gave(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), eps=1e-8, learning_rate=1e-3)
    before = trainer.forward(batch, outputs, 1.0)

    first = trainer.update(batch, outputs, 1.0, loss, step=0)
    second = trainer.update(batch, outputs, 1.0, loss, step=1)

    assert torch.equal(first.new["logprobs"], before["logprobs"])
    assert not first.new["logprobs"].requires_grad
    assert second.stats["loss"] < first.stats["loss"]
    assert first.stats.keys() == {"loss", "grad_norm", "learning_rate", "microbatches"}


def test_gradients_are_clipped_to_their_norm(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    trainer = trainer_of(model_folder("llama"), max_grad_norm=1e-9)
    before = {name: value.clone() for name, value in trainer.weights().items()}

    done = trainer.update(batch, outputs, 1.0, loss, step=0)

    moved = sum(((trainer.weights()[n] - before[n]) ** 2).sum() for n in before).sqrt()
    assert done.stats["grad_norm"] > 1e-3
    assert moved.item() == pytest.approx(PLAIN["learning_rate"] * 1e-9, rel=1e-3)


def test_a_critic_learns_values_and_keeps_its_head(model_folder, batch, tmp_path):
    @attrs.frozen
    class Regression:
        one_pass: bool = True

        def part(self, new, rows):
            return ((new["values"] - 3) ** 2).sum()

    spec = ModelSpec(model_folder("llama"))
    trainer = TorchTrainer(spec, TrainerOptions(learning_rate=3e-2), head="value", role="critic")

    found = [
        trainer.update(batch, ["values"], 1.0, Regression(), s).stats["loss"] for s in range(40)
    ]
    trainer.save(str(tmp_path))
    again = TorchScorer(ModelSpec(str(tmp_path)), head="value")

    assert found[0] == 9 * len(batch.tokens.values)  # the head starts at zero
    assert found[-1] < 0.05 * found[0]
    want = trainer.forward(batch, ["values"], 1.0)
    assert torch.equal(again.forward(batch, ["values"], 1.0)["values"], want["values"])


@pytest.mark.parametrize("name", ["token mean", "batch statistic"])
def test_an_empty_batch_takes_no_step(model_folder, name):
    nothing = Ragged.of_rows([], torch.int64)
    silent = Sequences(
        Ragged.of_rows([[5], [6]], torch.int64), Ragged.of_rows([[], []], torch.int64)
    )

    for batch in (Sequences(nothing, nothing), silent):
        loss, outputs = losses(batch)[name]
        trainer = trainer_of(model_folder("llama"), weight_decay=1.0)
        before = trainer.state_dict()
        done = trainer.update(batch, outputs, 1.0, loss, step=0)

        assert set(done.stats.values()) == {0}
        assert_close(trainer.state_dict(), before, rtol=0, atol=0)


def test_a_learning_rate_of_zero_changes_no_bit(model_folder, batch):
    loss, outputs = losses(batch)["token mean"]
    for dtype in ("float32", "bfloat16", "float64"):
        trainer = trainer_of(model_folder("llama"), dtype, learning_rate=0.0, weight_decay=1.0)
        before = trainer.state_dict()["weights"]

        done = [trainer.update(batch, outputs, 1.0, loss, step) for step in range(2)]

        assert all(each.stats["grad_norm"] > 0 for each in done)
        assert_close(trainer.state_dict()["weights"], before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["token mean", "pairs"])
def test_no_weight_changes_before_the_start_step(model_folder, batch, name):
    loss, outputs = losses(batch)[name]
    trainer = trainer_of(model_folder("llama"), start_step=2)
    before = trainer.state_dict()

    early = trainer.update(batch, outputs, 1.0, loss, step=1)
    unchanged = trainer.state_dict()
    late = trainer.update(batch, outputs, 1.0, loss, step=2)

    assert_close(unchanged, before, rtol=0, atol=0)
    assert early.stats["learning_rate"] == 0
    assert early.stats["loss"] == late.stats["loss"]
    assert late.stats["grad_norm"] > 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_changes_no_weight(model_folder, batch, value):
    trainer = trainer_of(model_folder("llama"))
    before = trainer.state_dict()

    with pytest.raises(EngineError, match=f"model: the loss of step 8 is {value}; no weight"):
        trainer.update(batch, ["logprobs"], 1.0, Constant(value), step=7)

    assert_close(trainer.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_a_loss_that_fails_half_way_leaves_no_gradient_behind(model_folder, batch):
    @attrs.frozen
    class Failing:
        good: TokenMean
        one_pass: bool = True

        def part(self, new, rows):
            if 0 in rows:
                raise ZeroDivisionError
            return self.good.part(new, rows)

    loss, outputs = losses(batch)["token mean"]
    trainer, other = [trainer_of(model_folder("llama"), tokens_per_microbatch=12) for _ in range(2)]

    with pytest.raises(ZeroDivisionError):
        trainer.update(batch, outputs, 1.0, Failing(loss), step=0)
    trainer.update(batch, outputs, 1.0, loss, step=0)
    other.update(batch, outputs, 1.0, loss, step=0)

    assert_close(trainer.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_gradient_that_is_not_finite_changes_no_weight(model_folder, batch):
    @attrs.frozen
    class Cliff:
        one_pass: bool = True

        def part(self, new, rows):
            return (new["logprobs"] - new["logprobs"].detach()).sqrt().sum()

    trainer = trainer_of(model_folder("llama"))
    before = trainer.state_dict()

    with pytest.raises(EngineError) as error:
        trainer.update(batch, ["logprobs"], 1.0, Cliff(), step=7)

    assert str(error.value) == snapshot("""\
model: the gradient norm of step 8 is nan; no weight was changed
help: look for infinite rewards or ratios in this batch, or lower learning_rate\
""")
    assert_close(trainer.state_dict(), before, rtol=0, atol=0)
