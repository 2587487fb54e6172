"""A trainer on several ranks does what it does on one, and each rank keeps its share."""

from functools import partial
from unittest import mock

import attrs
import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.layers import layers_of
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.model.narrow import is_linear
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks, among
from flowrl.runtime.training.schedule import ForwardOptions, TrainerOptions
from tests.runtime.engines.losses import PLAIN, TokenMean, losses
from tests.runtime.ray.ranked import SMALL, Run, assert_same, here, trained


@pytest.mark.parametrize("fsdp", [Fsdp2(), Fsdp2(reshard_after_forward=False), None])
@pytest.mark.parametrize(
    ("count", "head", "changes", "name"),
    [
        (2, None, {"packing": "packed"}, "token mean"),
        (3, None, {}, "batch statistic"),
        (2, None, {"tokens_per_microbatch": 1000, "checkpointing": True}, "pairs"),
        (2, "lm+value", {}, ""),
    ],
)
def test_ranks_train_as_one_does_and_divide_the_weights(
    count, head, changes, name, fsdp, on, model_folder, batch
):
    spec = ModelSpec(model_folder("llama"), head, "float64")
    how = {"name": name, "options": SMALL | changes}

    found = on(count, Run(how), spec, batch, fsdp)

    assert_same(found, trained(spec, batch, **how))
    kept, whole = [each["kept"] for each in found], found[0]["whole"]
    assert sum(kept) == (whole if fsdp else count * whole)
    assert max(kept) < 0.6 * whole or not fsdp


@attrs.frozen
class InPool(Run):
    """The same on all ranks but the first, which has no part in what they do."""

    def __call__(self, *args):
        world = Ranks(dist.get_rank(), dist.get_world_size(), 60)
        ranks = among(world, range(1, world.count))
        return trained(*args, ranks=ranks, **self.how) if ranks else None


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("name", ["token mean", "batch statistic"])
def test_replicas_of_divided_weights_train_as_one_does(name, offload, on, model_folder, batch):
    spec, how = ModelSpec(model_folder("llama"), dtype="float64"), {"name": name, "steps": 3}

    found = on(5, InPool(how), spec, batch, Fsdp2(replicas=2, offload=offload))[1:]

    assert_same(found, trained(spec, batch, **how))
    whole, kept = found[0]["whole"], [each["kept"] for each in found]
    assert kept[:2] == kept[2:]
    assert sum(kept) == 2 * whole
    assert max(kept) < 0.6 * whole


@attrs.frozen
class Compiled(Run):
    """The same with compiled layers, but for the code that a compiler would write."""

    def __call__(self, *args):
        with mock.patch.object(torch, "compile", partial(torch.compile, backend="aot_eager")):
            return super().__call__(*args)


@pytest.mark.slow
def test_compiled_layers_of_divided_weights_train_as_one_does(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64")
    compiled = {"options": SMALL | {"compile": True, "checkpointing": True}}

    found = on(2, Compiled(compiled), spec, batch, Fsdp2())

    assert_same(found, trained(spec, batch))


def frozen_and_averaged(spec, batch, fsdp=None):
    """Return a model's outputs before an update, and the mean of its weights before and after."""
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN), ranks=here(), fsdp=fsdp)
    before = trainer.snapshot()
    loss, outputs = losses(batch)["token mean"]
    trainer.update(batch, outputs, 1.0, loss, 0)
    outputs = before.forward(batch, outputs, 1.0)
    before.average(trainer.weights(), 0.5)
    return outputs, before.weights()


def test_replicas_of_divided_weights_are_frozen_and_averaged(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64")

    found = on(4, frozen_and_averaged, spec, batch, Fsdp2(replicas=2))

    for each in found:
        assert_close(each, frozen_and_averaged(spec, batch), rtol=0, atol=1e-10)


def stored_and_whole(spec, fsdp):
    """Return what a rank stores and the whole weights, before and after each number is doubled."""
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN), ranks=here(), fsdp=fsdp)
    before = trainer.state_dict()["weights"]
    stored = {name: tensor.clone() for name, tensor in trainer.stored().items()}
    for tensor in trainer.stored().values():
        tensor.mul_(2)
    return stored, before, trainer.weights()


@pytest.mark.parametrize("fsdp", [Fsdp2(), Fsdp2(replicas=2), None])
def test_what_ranks_store_are_the_chunks_of_the_weights_and_may_be_written(fsdp, on, model_folder):
    spec = ModelSpec(model_folder("llama"), dtype="float64")

    found = on(4, stored_and_whole, spec, fsdp)

    chunks = 4 // fsdp.replicas if fsdp else 1
    for rank, (stored, before, after) in enumerate(found):
        assert stored.keys() == before.keys() == after.keys()
        for name, tensor in stored.items():
            assert torch.equal(tensor, before[name].chunk(chunks)[rank % chunks])
            assert torch.equal(2 * before[name], after[name])


def rows(*lengths):
    draw = torch.Generator().manual_seed(2)
    texts = [[torch.randint(3, 64, (n,), generator=draw) for n in pair] for pair in lengths]
    contexts, tokens = zip(*texts, strict=True)
    return Sequences(Ragged.of_rows(contexts, torch.int64), Ragged.of_rows(tokens, torch.int64))


def test_what_waits_in_host_memory_changes_no_bit(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64")
    offload = {"checkpointing": True, "offload_activations": True, "offload_optimizer": True}

    plain = on(2, Run({}), spec, batch, Fsdp2())
    state = on(2, Run({"options": SMALL | offload}), spec, batch, Fsdp2())[0]["state"]
    going_on = on(2, Run({"state": state, "options": SMALL | offload}), spec, batch, Fsdp2())

    assert_close(state, plain[0]["state"], rtol=0, atol=0)
    expected = on(2, Run({"state": state}), spec, batch, Fsdp2())
    assert_same(going_on, expected[0], 0)


def test_ranks_whose_rows_have_no_tokens_or_that_have_no_rows_take_part(on, model_folder):
    spec = ModelSpec(model_folder("llama"), dtype="float64")

    for batch in (rows((3, 6)), rows((2, 5), (4, 0)), rows((3, 0), (5, 0))):
        found = on(3, trained, spec, batch, Fsdp2())

        assert_same(found, trained(spec, batch))


def masked(spec, batch, fsdp=None):
    """Update a trainer on the first of two rows, of which a rank has one."""
    trainer = TorchTrainer(spec, TrainerOptions(**PLAIN), ranks=here(), fsdp=fsdp)
    lengths = batch.tokens.lengths[0]
    loss = TokenMean(torch.tensor([1.0, 0.0]).repeat_interleave(lengths), lengths)
    done = trainer.update(batch, ["logprobs"], 1.0, loss, 0)
    return trainer.weights(), done.stats["grad_norm"]


def test_a_rank_with_masked_tokens_alone_takes_part(on, model_folder):
    spec, batch = ModelSpec(model_folder("llama"), dtype="float64"), rows((3, 6), (3, 6))

    found = on(2, masked, spec, batch, Fsdp2())

    weights, norm = masked(spec, batch)
    assert norm > 1e-3
    for own, of_rank in found:
        assert_close(own, weights, rtol=0, atol=1e-10)
        assert of_rank == pytest.approx(norm, rel=1e-10)


def test_a_state_goes_on_with_any_number_of_ranks(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="float64")
    two = on(2, trained, spec, batch, Fsdp2())[0]["state"]

    going_on = Run({"state": two})

    expected = going_on(spec, batch)
    assert_same(on(3, going_on, spec, batch, Fsdp2(reshard_after_forward=False)), expected)
    name = "model.embed_tokens.weight"
    assert not torch.equal(expected["weights"][name], two["weights"][name])


@pytest.mark.parametrize("head", [None, "lm+value"])
def test_ranks_save_one_whole_model(head, on, model_folder, batch, tmp_path):
    spec = ModelSpec(model_folder("llama"), head, "float64")

    found = on(2, Run({"folder": str(tmp_path)}), spec, batch, Fsdp2())

    saved = TorchScorer(attrs.evolve(spec, path=str(tmp_path)))
    assert_close(saved.weights(), found[0]["weights"], rtol=0, atol=0)
    outputs = list(found[0]["outputs"])
    assert_close(saved.forward(batch, outputs, 1.0), found[0]["outputs"], rtol=0, atol=1e-12)


class Seen(TorchDispatchMode):
    """Sees what a rank gathers, and which matrices are copied into bfloat16."""

    def __init__(self):
        super().__init__()
        self.gathered, self.copied = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if "allgather_base" in func.__name__:
            self.gathered += args[1].nbytes
        if "_to_copy" in func.__name__ and made.dtype == torch.bfloat16:
            self.copied.add(tuple(made.shape))
        return made


def gathering(spec, batch, fsdp):
    """Return the bytes that a rank gathers to run forward once, and what is copied for it."""
    scorer = TorchScorer(spec, ForwardOptions(tokens_per_microbatch=1000), ranks=here(), fsdp=fsdp)
    with Seen() as seen:
        scorer.forward(batch, ["logprobs"], 1.0)
    shapes = [tuple(p.shape) for layer in layers_of(scorer.model) for p in layer.parameters()]
    return seen.gathered, seen.copied.intersection(shapes)


@pytest.mark.parametrize("narrow", ["none", "linear"])
def test_linear_layers_travel_in_bfloat16_and_are_not_copied(narrow, on, model_folder, batch):
    spec = ModelSpec(model_folder("qwen2"), dtype="bfloat16", narrow=narrow)
    model = load_model(spec, dtype=torch.float32)
    inside = [m for layer in layers_of(model) for m in layer.modules() if is_linear(m)]
    linear = sum(p.numel() for module in inside for p in module.parameters())
    others = sum(p.numel() for p in model.parameters()) - linear
    head = model.lm_head.weight.numel() if narrow == "linear" else 0

    found = on(2, gathering, spec, batch, Fsdp2())

    assert found == [((2 * linear + 4 * others - 2 * head) / 2, set())] * 2


@attrs.frozen
class Widely(Run):
    """The same, where weights travel in float32 and autocast narrows them."""

    def __call__(self, *args):
        with mock.patch("flowrl.runtime.model.fsdp2.norms_of", return_value=None):
            return trained(*args, **self.how)


@pytest.mark.parametrize(
    ("fsdp", "changes", "name"),
    [
        (Fsdp2(), {"checkpointing": True}, "batch statistic"),
        (Fsdp2(reshard_after_forward=False), {}, "token mean"),
        (Fsdp2(offload=True), {}, "pairs"),
    ],
)
def test_what_travels_in_bfloat16_trains_to_the_same_bits(
    fsdp, changes, name, on, model_folder, batch
):
    spec = ModelSpec(model_folder("qwen2"), dtype="bfloat16")
    how = {"name": name, "options": SMALL | changes}

    found = on(2, Run(how), spec, batch, fsdp)

    (wide, _) = on(2, Widely(how), spec, batch, fsdp)
    assert_same(found, wide, tolerance=0)


def test_bfloat16_keeps_float32_weights_in_shares(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="bfloat16")

    found = on(2, Run({"steps": 1}), spec, batch, Fsdp2())

    assert {weight.dtype for weight in found[0]["weights"].values()} == {torch.float32}
    expected = trained(spec, batch, steps=1)["weights"]
    assert_close(found[0]["weights"], expected, rtol=0, atol=1e-3)


def scored(spec, batch, fsdp):
    """Return the log-probabilities of a frozen model, and the bytes that this rank has of it."""
    scorer = TorchScorer(spec, ranks=here(), fsdp=fsdp)
    outputs = scorer.forward(batch, ["logprobs"], 1.0)
    return outputs["logprobs"], sum(x.nbytes for x in scorer.stored().values())


@pytest.mark.parametrize("fsdp", [Fsdp2(), Fsdp2(offload=True)])
def test_a_divided_reference_is_narrow_and_its_policy_to_the_bit(fsdp, on, model_folder, batch):
    policy = ModelSpec(model_folder("qwen2"), dtype="bfloat16")
    reference = attrs.evolve(policy, narrow="linear")

    (wide, all_bytes), *_ = on(2, scored, policy, batch, fsdp)
    found = on(2, scored, reference, batch, fsdp)

    for own, held in found:
        assert_close(own, wide, rtol=0, atol=0)
        assert held < 0.75 * all_bytes  # of so small a model a third are tables
