import math

import attrs
import pytest
import torch
import transformers
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences
from flowrl.runtime.engines.torch import TorchScorer, TorchTrainer
from flowrl.runtime.models import ModelSpec
from flowrl.runtime.schedule import TrainerOptions


@attrs.frozen(eq=False)
class TokenMean:
    """Minus the mean of weighted logprobs: a sum over rows once the divisor is known."""

    weights: torch.Tensor  # f[all tokens]
    lengths: torch.Tensor  # i64[row]
    one_pass: bool = True

    def part(self, new, rows):
        chosen = torch.cat([self.weights.split(self.lengths.tolist())[row] for row in rows])
        return -(new["logprobs"] * chosen).sum() / len(self.weights)

    def cotangents(self, new):
        return gradients(self.whole, new)

    def whole(self, new):
        return self.part(new, torch.arange(len(self.lengths)))


@attrs.frozen(eq=False)
class Pairwise:
    """Logistic loss of summed logprobs of neighbouring rows, as DPO's."""

    lengths: torch.Tensor
    one_pass: bool = False

    def cotangents(self, new):
        def whole(new):
            sums = torch.stack([row.sum() for row in new["logprobs"].split(self.lengths.tolist())])
            return -torch.nn.functional.logsigmoid(sums[0:6:2] - sums[1:6:2]).mean()

        return gradients(whole, new)


@attrs.frozen(eq=False)
class BatchStatistic:
    """Reads two outputs over the whole batch: whitened logprobs times entropy."""

    one_pass: bool = False

    def cotangents(self, new):
        def whole(new):
            lp = new["logprobs"]
            return ((lp - lp.mean()) / lp.std() * new["entropy"] ** 2).mean()

        return gradients(whole, new)


@attrs.frozen(eq=False)
class Constant:
    """A loss of a given value, whatever the model says."""

    value: float
    one_pass: bool = True

    def part(self, new, rows):
        return (new["logprobs"] * 0).sum() + self.value


def gradients(whole, new):
    """Return a loss and its gradient in each output that it reads."""
    new = {name: value.detach().requires_grad_() for name, value in new.items()}
    loss = whole(new)
    found = torch.autograd.grad(loss, list(new.values()), allow_unused=True)
    return loss.detach(), {n: g for n, g in zip(new, found, strict=True) if g is not None}


def losses(batch):
    lengths = batch.tokens.lengths[0]
    weights = torch.linspace(-1, 2, int(lengths.sum()), dtype=torch.float64)
    return {
        "token mean": (TokenMean(weights, lengths), ["logprobs"]),
        "token mean in two passes": (TokenMean(weights, lengths, one_pass=False), ["logprobs"]),
        "pairs": (Pairwise(lengths), ["logprobs"]),
        "batch statistic": (BatchStatistic(), ["logprobs", "entropy"]),
    }


PLAIN = {"learning_rate": 0.1, "eps": 1.0, "max_grad_norm": math.inf}
"""With eps 1, AdamW's first step is a smooth function of the gradient: g / (|g| + 1)."""


def trainer_of(folder, dtype="float64", **options):
    return TorchTrainer(ModelSpec(folder, dtype=dtype), TrainerOptions(**(PLAIN | options)))


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

    trainer.save(str(tmp_path / "float32"))
    trainer.save(str(tmp_path / "bfloat16"), dtype="bfloat16")

    assert capfd.readouterr() == ("", "")
    for dtype in (torch.float32, torch.bfloat16):
        folder = tmp_path / str(dtype).removeprefix("torch.")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        assert model.dtype == dtype
        for name, weight in trainer.weights().items():
            assert torch.equal(model.state_dict()[name], weight.to(dtype))


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
        TorchScorer(spec, packing="packed", role="reference")

    for row, expected in zip(got, alone, strict=True):
        assert_close(row, expected, rtol=0, atol=1e-10)
    assert str(error.value) == snapshot("""\
reference: a BloomForCausalLM lets packed rows see each other
help: leave packing out, or set packing = "padded"\
""")
