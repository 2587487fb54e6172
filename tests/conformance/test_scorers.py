"""Every engine that runs a model forward is held to the same sentences."""

from itertools import product

import pytest
import torch
from torch.distributed import FileStore
from torch.testing import assert_close

from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sampling, Sequences, load
from flowrl.runtime.known_engines import SCORERS, TRAINERS
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks, join
from tests.ranked import as_ranks

from .conftest import BOS, EOS

pytestmark = pytest.mark.processes

EXACT = {"float32": 1e-4, "float64": 1e-10}
ROWS = [
    ([BOS], [70, 80, EOS]),
    ([BOS, *range(3, 259)], [100] * 40),
    ([BOS, 5, 6], []),
    ([BOS, 9], [EOS]),
]


@pytest.fixture(
    params=[*(("score", n) for n in SCORERS), *(("train", n) for n in TRAINERS)], ids="-".join
)
def engine(request):
    """Return the class of an engine."""
    return load(*request.param)


def as_batch(rows):
    contexts, tokens = zip(*rows, strict=True)
    return Sequences(Ragged.of_rows(contexts, torch.int64), Ragged.of_rows(tokens, torch.int64))


def expected(reference, temperature):
    """Return logprobs and entropy of each token, packed."""
    logprobs, entropy = [], []
    for prompt, tokens in ROWS:
        log_p = (reference.logits(prompt, tokens) / temperature).log_softmax(-1)
        logprobs.append(log_p.gather(-1, torch.tensor(tokens, dtype=torch.int64)[:, None])[:, 0])
        entropy.append(-(log_p.exp() * log_p).sum(-1))
    return {"logprobs": torch.cat(logprobs), "entropy": torch.cat(entropy)}


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("dtype", EXACT)
def test_outputs_are_the_models(engine, folders, reference, head, dtype, temperature):
    made = engine(ModelSpec(folders[head], dtype=dtype))

    found = made.forward(as_batch(ROWS), ["logprobs", "entropy"], temperature)

    for name, value in expected(reference, temperature).items():
        assert_close(found[name].double(), value, rtol=0, atol=EXACT[dtype])


USES = ("score", "train")


@pytest.fixture(scope="module")
def divided(folders, tmp_path_factory):
    """Return the outputs of two ranks that divide weights by FSDP2, each by use and model."""
    shared = tmp_path_factory.mktemp("ranks")
    as_ranks(2, tell, folders, shared)
    return [torch.load(shared / f"{index}.pt") for index in range(2)]


def tell(index, folders, shared):
    """Tell the outputs of a rank."""
    torch.set_num_threads(1)
    ranks, batch, made = Ranks(index, 2, 120), as_batch(ROWS), {}
    ranks = join(ranks, FileStore(str(shared / "store"), 2))
    for use, head in product(USES, folders):
        engine = load(use, "torch")(
            ModelSpec(folders[head], dtype="float64"), ranks=ranks, fsdp=Fsdp2()
        )
        made[use, head] = engine.forward(batch, ["logprobs", "entropy"], 0.6)
    torch.save(made, shared / f"{index}.pt")


@pytest.mark.parametrize("use", USES)
def test_outputs_of_ranks_that_divide_weights_are_the_models(divided, reference, head, use):
    for found in divided:
        for name, value in expected(reference, 0.6).items():
            assert_close(found[use, head][name], value, rtol=0, atol=1e-10)


def test_weights_are_named_as_in_the_folder_and_written_in_place(engine, folders, reference, head):
    made = engine(ModelSpec(folders[head], dtype="float64"))
    stored = made.stored()
    assert {n: x.shape for n, x in stored.items()} == {
        n: x.shape for n, x in reference.weights().items()
    }

    reference.change(seed=1)
    for name, own in stored.items():
        own.copy_(reference.weights()[name])

    found = made.forward(as_batch(ROWS), ["logprobs"], 1.0)["logprobs"]
    assert_close(found, expected(reference, 1.0)["logprobs"], rtol=0, atol=1e-10)


def test_a_snapshot_stays_as_it_is(engine, folders, reference, head):
    made = engine(ModelSpec(folders[head], dtype="float64"))
    copy = made.snapshot()

    for own in made.stored().values():
        own.mul_(1.1)

    found = copy.forward(as_batch(ROWS), ["logprobs"], 1.0)["logprobs"]
    assert_close(found, expected(reference, 1.0)["logprobs"], rtol=0, atol=1e-10)


def test_what_a_generator_samples_has_the_logprobs_it_reports(
    engine, folders, head, generator, requests, reference
):
    """The gap that a run measures, with no limit but rounding."""
    made = engine(ModelSpec(folders[head]))

    found = generator.generate(requests, Sampling(max_tokens=20))

    rows = [
        (r.prompt, one.tokens) for r, group in zip(requests, found, strict=True) for one in group
    ]
    reported = torch.tensor([x for group in found for one in group for x in one.logprobs])
    scored = made.forward(as_batch(rows), ["logprobs"], 1.0)["logprobs"]
    assert_close(scored, reported, rtol=0, atol=EXACT["float32"])
