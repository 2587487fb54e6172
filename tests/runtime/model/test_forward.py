import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from flowrl.functional.divergences import entropy_of_logits
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences
from flowrl.runtime.model.forward import forward_outputs
from flowrl.runtime.model.heads import head_module
from flowrl.runtime.model.language import token_outputs
from flowrl.runtime.model.models import ModelSpec, load_model
from tests.runtime.conftest import CLASSIFIERS

ARCHITECTURES = ["llama", "qwen2", "gemma2", "granite", "gpt2"]
HEADS = {"value": ["values"], "token_reward": ["token_rewards"], "reward": ["rewards"]}


FAMILIES = ["llama", "qwen2", "gpt2", "gpt_neox"]
"""Models whose classifiers in transformers differ: the name of the head, its bias, its place."""


def one_by_one(batch):
    """Yield each row as a tensor of its tokens, and how many of these are context."""
    for context, tokens in zip(batch.context.rows(), batch.tokens.rows(), strict=True):
        yield torch.cat([context, tokens])[None], len(context)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_logprobs_are_those_of_each_sequence_alone(model_folder, batch, architecture, packing):
    model = load_model(ModelSpec(model_folder(architecture), dtype="float64"))
    expected = []
    for row, start in one_by_one(batch):
        log_p = (model(row).logits[0, start - 1 : -1] / 0.7).log_softmax(-1)
        expected.append(
            (log_p.gather(-1, row[0, start:, None])[:, 0], -(log_p.exp() * log_p).sum(-1))
        )

    got = forward_outputs(model, batch, ["logprobs", "entropy"], 0.7, packing)

    assert_close(got["logprobs"], torch.cat([row[0] for row in expected]), rtol=0, atol=1e-12)
    assert_close(got["entropy"], torch.cat([row[1] for row in expected]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "gpt_neox", "opt"])
def test_logits_made_in_chunks_give_the_same_values_and_gradients(
    model_folder, batch, architecture, monkeypatch
):
    model = load_model(ModelSpec(model_folder(architecture), dtype="float64"))
    widths, found = [], []
    model.get_output_embeddings().register_forward_hook(
        lambda _, __, logits: widths.append(logits.shape[-2])
    )
    for most in (4096, 4):
        monkeypatch.setattr("flowrl.runtime.model.language.HEAD_TOKENS", most)
        made = forward_outputs(model, batch, ["logprobs", "entropy"], 0.7, "padded")
        (made["logprobs"].sum() + (made["entropy"] ** 2).sum()).backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        found.append((made, gradients))

    assert_close(found[1], found[0], rtol=0, atol=1e-12)
    tokens = int(batch.tokens.lengths[0].sum())
    assert widths[0] == tokens
    assert max(widths[1:]) == 4
    assert sum(widths[1:]) == 2 * tokens  # forward, and again backward


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_no_gradient_leaks_from_one_sequence_into_another(
    model_folder, batch, architecture, packing
):
    model = load_model(ModelSpec(model_folder(architecture), dtype="float64"))
    table = model.get_input_embeddings()
    seen = {}
    table.register_forward_hook(lambda _, __, out: seen.update(out=out))

    out = forward_outputs(model, batch, ["logprobs"], 1.0, packing)["logprobs"]
    target = out[batch.tokens.lengths[0][:4].sum() :][:5].sum()  # the fifth row's
    (gradient,) = torch.autograd.grad(target, seen["out"])

    touched = gradient.flatten(0, 1).abs().sum(-1).nonzero()[:, 0].tolist()
    begin = 4 * 10 if packing == "padded" else 8 + 5 + 10 + 2
    assert touched == list(range(begin, begin + 9))


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_numbers_of_a_head_stand_at_their_tokens(model_folder, batch, architecture, head, packing):
    model = load_model(ModelSpec(model_folder(architecture), head, dtype="float64"))
    layer = head_module(model)
    torch.nn.init.normal_(layer.weight)
    expected = []
    for row, start in one_by_one(batch):
        numbers = layer(model.base_model(row).last_hidden_state)[0, :, 0]
        chosen = {
            "value": numbers[start - 1 : -1],
            "token_reward": numbers[start:],
            "reward": numbers[-1:],
        }
        expected.append(chosen[head])

    got = forward_outputs(model, batch, HEADS[head], 1.0, packing)

    assert_close(got[HEADS[head][0]], torch.cat(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("of", CLASSIFIERS)
@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_saved_head_says_what_it_says_in_transformers(
    classifier_folder, batch, architecture, of, packing
):
    folder = classifier_folder(architecture, of)
    theirs = CLASSIFIERS[of].from_pretrained(folder, dtype=torch.float64).eval()
    head, output = {
        "tokens": ("token_reward", "token_rewards"),
        "sequences": ("reward", "rewards"),
    }[of]
    expected = []
    for row, start in one_by_one(batch):
        logits = theirs(row).logits[0]
        expected.append(logits[start:, 0] if of == "tokens" else logits)

    model = load_model(ModelSpec(folder, head, dtype="float64"))
    got = forward_outputs(model, batch, [output], 1.0, packing)[output]

    assert_close(got, torch.cat(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("forbidden", [-torch.inf, torch.finfo(torch.float32).min])
def test_tokens_that_a_model_forbids_add_nothing_to_the_entropy(forbidden):
    logits = torch.tensor([[0.0, 1.0, forbidden]], requires_grad=True)
    allowed = logits.detach()[:, :2].requires_grad_()

    entropy = token_outputs(logits, torch.tensor([1]), ["entropy"], 0.5)["entropy"]
    expected = entropy_of_logits(allowed, temperature=0.5)

    gradients = torch.autograd.grad(entropy + expected, [logits, allowed])
    assert_close(entropy, expected)
    assert_close(gradients[0], torch.nn.functional.pad(gradients[1], (0, 1)))


@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_a_batch_without_rows_or_tokens_has_empty_outputs(model_folder, packing):
    model = load_model(ModelSpec(model_folder("llama")))
    nothing = Ragged.of_rows([], torch.int64)
    silent = Sequences(
        Ragged.of_rows([[5, 6], [7]], torch.int64), Ragged.of_rows([[], []], torch.int64)
    )

    for batch in (Sequences(nothing, nothing), silent):
        got = forward_outputs(model, batch, ["logprobs", "entropy"], 1.0, packing)

        assert {name: len(value) for name, value in got.items()} == {"logprobs": 0, "entropy": 0}


def test_outputs_of_another_head_are_refused(model_folder, batch):
    model = load_model(ModelSpec(model_folder("llama")))

    with pytest.raises(EngineError) as error:
        forward_outputs(model, batch, ["values"])

    assert str(error.value) == snapshot("""\
`values` needs a model with a scalar head; got a LlamaForCausalLM
help: set the role's head in [models]: "lm", "lm+value", "value", "token_reward", "reward"\
""")


def test_greedy_logprobs_are_refused(model_folder, batch):
    model = load_model(ModelSpec(model_folder("llama")))

    with pytest.raises(EngineError) as error:
        forward_outputs(model, batch, ["logprobs"], temperature=0.0)

    assert str(error.value) == snapshot("""\
logprobs need a temperature above 0; got 0.0
help: greedy samples have no logprobs: sample what is trained on at a temperature above 0\
""")
