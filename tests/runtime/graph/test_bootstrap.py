"""The critic's value after a sample that was cut off, held to a critic in plain torch."""

import attrs
import pytest
import torch
from inline_snapshot import snapshot
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.heads import head_module
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.training.schedule import ForwardOptions
from tests.ir.source import refusal
from tests.runtime import steps


def after(model, head, context, tokens):
    """Return the head's number at the last token of one sequence, by the model alone."""
    states = model.base_model(torch.cat([context, tokens])[None]).last_hidden_state
    return head(states)[0, -1, 0]


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("head", ["value", "lm+value"])
def test_end_values_are_those_of_each_sequence_alone(
    model_folder, batch, head, architecture, packing
):
    spec = ModelSpec(model_folder(architecture), head, "float64")
    scorer = TorchScorer(spec, ForwardOptions(packing=packing, tokens_per_microbatch=20))
    model = scorer.model
    own = model.value_head if head == "lm+value" else head_module(model)
    torch.nn.init.normal_(own.weight)

    both = scorer.forward(batch, ["values", "end_values"], 1.0)

    pairs = zip(batch.context.rows(), batch.tokens.rows(), strict=True)
    want = torch.stack([after(model, own, *pair) for pair in pairs])
    assert_close(both["end_values"], want, rtol=0, atol=1e-12)
    alone = scorer.forward(batch, ["end_values"], 1.0)["end_values"]
    assert_close(alone, want, rtol=0, atol=1e-12)
    assert_close(both["values"], scorer.forward(batch, ["values"], 1.0)["values"])


def test_logprobs_beside_end_values_are_those_without(model_folder, batch):
    scorer = TorchScorer(ModelSpec(model_folder("llama"), "lm+value", "float64"))

    made = scorer.forward(batch, ["logprobs", "entropy", "end_values"], 0.7)

    want = scorer.forward(batch, ["logprobs", "entropy"], 0.7)
    assert_close({name: made[name] for name in want}, want)


class SomeCut(steps.FixedTokens):
    """Samples of which those of four tokens and more are cut off."""

    def sample(self, seed):
        done = super().sample(seed)
        return attrs.evolve(done, truncated=len(done.tokens) >= 4)


SEEN = {}


@fl.op(
    "i32[prompt, sample, token], bool[prompt, sample], f32[prompt, sample], f32[prompt, sample], "
    "f32[prompt, sample, token] -> f32[]",
    per="batch",
)
def see(tokens, truncated, bootstrap, scores, returns, *, lengths):
    """Note the values of a step."""
    SEEN.update(truncated=truncated, bootstrap=bootstrap, scores=scores)
    SEEN.update(tokens=tokens.split(lengths.tolist()), returns=returns.split(lengths.tolist()))
    return torch.zeros(())


@fl.program
def cut(policy: fl.Model, critic: fl.Model, prompts: fl.Prompts):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=2))
    values, bootstrap = ops.values(critic, rollouts), ops.bootstrap_values(critic, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask)
    _, returns = ops.gae(rewards, values, rollouts.mask, bootstrap)
    return {"seen": see(rollouts.tokens, rollouts.truncated, bootstrap, scores, returns)}


@pytest.fixture
def executor(model_folder, classifier_folder, tokenizer):
    traced = fl.trace(cut)
    critic = steps.role(classifier_folder("llama", "tokens"))
    roles = steps.roles(traced, model_folder) | {"critic": critic}
    return steps.executor(traced, roles, tokenizer, generator=SomeCut())


def test_only_samples_that_were_cut_off_have_a_value_after_them(executor, tokenizer):
    model = executor.first()["critic"].engine.model

    steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    contexts = [tokenizer(text)["input_ids"] for text in steps.TEXTS[:4] for _ in range(2)]
    rows = zip(contexts, SEEN["tokens"], SEEN["truncated"].tolist(), strict=True)
    with torch.no_grad():
        want = [
            after(model, head_module(model), torch.tensor(context), tokens) if cut_off else 0.0
            for context, tokens, cut_off in rows
        ]
    assert 0 < SEEN["truncated"].sum() < 8
    assert_close(SEEN["bootstrap"], torch.tensor(want))
    total = torch.stack([row[0] for row in SEEN["returns"]])  # undiscounted, with lam = 1
    assert_close(total, SEEN["scores"] + SEEN["bootstrap"])


def test_only_samples_that_were_cut_off_go_through_the_critic(executor, tokenizer):
    critic = executor.first()["critic"].engine
    asked, forward = [], critic.forward
    critic.forward = lambda batch, outputs, t: (
        asked.append((outputs, len(batch))) or forward(batch, outputs, t)
    )

    steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    assert sorted(asked) == [(("end_values",), int(SEEN["truncated"].sum())), (("values",), 8)]


def test_data_that_no_limit_cuts_off_is_refused():
    message = refusal("""
        @fl.program
        def step(critic: fl.Model, pairs: fl.Pairs):
            return {"after": ops.bootstrap_values(critic, pairs).mean()}
    """)

    assert message == snapshot("""\
Pairs has no field `truncated`; it has prompts, tokens, mask
  example.py:5
    5 |     return {"after": ops.bootstrap_values(critic, pairs).mean()}
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.record(batch, truncated=value)` makes a record that has it\
""")
