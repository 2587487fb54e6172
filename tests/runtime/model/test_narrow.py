"""A model that never learns takes half the memory, and gives the bits of float32 weights."""

import pytest
import torch
import transformers
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.host import Host
from flowrl.runtime.loading import Loader
from flowrl.runtime.model.models import ModelSpec
from tests.runtime.families import FAMILIES, HEADS, KEYS, SIZES, model_of
from tests.runtime.steps import role

ALL = FAMILIES | {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=63, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    ),
    "mixtral": lambda: transformers.MixtralConfig(**KEYS, num_local_experts=4),
    "opt": lambda: transformers.OPTConfig(**SIZES, ffn_dim=24, word_embed_proj_dim=16),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **HEADS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
}
READ = ("logprobs", "entropy")


def scorer(folder, narrow, head=None, **how):
    return TorchScorer(ModelSpec(folder, head, dtype="bfloat16", narrow=narrow), **how)


def of(model, batch):
    return model.forward(batch, ["logprobs"], 1.0)["logprobs"]


def widths(engine):
    return {parameter.dtype for parameter in engine.model.parameters()}


@pytest.mark.parametrize("saved", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ALL)
def test_what_linear_layers_have_is_narrow_to_the_same_bits(tmp_path, batch, family, saved):
    config = ALL[family]()
    config.vocab_size = 64
    model_of(config).to(saved).save_pretrained(tmp_path)
    wide, narrow = (scorer(str(tmp_path), which) for which in ("none", "linear"))

    found = narrow.forward(batch, READ, 0.7)

    assert_close(found, wide.forward(batch, READ, 0.7), rtol=0, atol=0)
    assert widths(wide) == {torch.float32}
    assert widths(narrow) == {torch.float32, torch.bfloat16}


@pytest.mark.parametrize("of", ["tokens", "sequences"])
def test_a_frozen_head_of_one_number_gives_the_same_bits(classifier_folder, batch, of):
    folder = classifier_folder("qwen2", of)
    wide, narrow = (scorer(folder, which, "reward") for which in ("none", "linear"))

    found = narrow.forward(batch, ["token_rewards"], 1.0)

    assert_close(found, wide.forward(batch, ["token_rewards"], 1.0), rtol=0, atol=0)
    assert widths(narrow) == {torch.float32, torch.bfloat16}


@fl.program
def followed(policy: fl.Model, reference: fl.Model, slow: fl.Model, data: fl.Examples):
    """Train a policy beside a model that never changes, and one that follows it."""
    frozen, followed = (ops.logprobs(model, data) for model in (reference, slow))
    policy, _ = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, data.mask), data)
    gap = (frozen - followed).mean(mask=data.mask)
    return policy, ops.ema(slow, policy, decay=0.9), {"gap": gap}


def test_only_what_never_learns_is_narrow(model_folder):
    lowered, host = fl.trace(followed).lower(), Host()
    how = role(model_folder("llama"), dtype="bfloat16")
    roles = dict.fromkeys(("policy", "reference", "slow"), how)

    Loader(lowered.graph, roles, {}, host).load()

    held = {name: widths(model.engine) for name, model in host.models.items()}
    assert held == {
        "policy": {torch.float32},
        "reference": {torch.float32, torch.bfloat16},
        "slow": {torch.float32},
    }


@pytest.mark.parametrize("narrow", ["none", "linear"])
def test_a_reference_is_its_policy_to_the_bit_before_it_trains(model_folder, batch, narrow):
    policy = TorchTrainer(ModelSpec(model_folder("llama"), dtype="bfloat16"))
    reference = scorer(model_folder("llama"), narrow)

    gap = of(policy, batch) - of(reference, batch)

    assert not gap.any()
    exact = of(TorchScorer(ModelSpec(model_folder("llama"), dtype="float64")), batch)
    assert 0 < (of(reference, batch) - exact).abs().mean() < 0.02  # rounding, as of the policy
