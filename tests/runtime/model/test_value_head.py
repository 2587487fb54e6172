import logging

import pytest
import torch
import transformers
from inline_snapshot import snapshot
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Request, Sampling, Sequences
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.training.schedule import ForwardOptions, TrainerOptions
from tests.runtime import steps

BOTH = ["logprobs", "entropy", "values"]


class OwnCritic:
    """Pushes logprobs up and values to 3."""

    one_pass = True

    def part(self, new, rows):
        return ((new["values"] - 3) ** 2).mean() - new["logprobs"].mean()


def trainer_of(folder, batch, updates=2, dtype="float64", **options):
    """Return a trained model with two heads."""
    options = TrainerOptions(learning_rate=0.02, eps=1e-3, **options)
    made = TorchTrainer(ModelSpec(folder, dtype=dtype), options, head="lm+value")
    for step in range(updates):
        made.update(batch, ["logprobs", "values"], 1.0, OwnCritic(), step)
    return made


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_language_model_without_a_value_head_gets_one_of_zeros(
    model_folder, architecture, caplog
):
    spec = ModelSpec(model_folder(architecture), "lm+value")

    with caplog.at_level(logging.INFO, logger="flowrl"):
        model = load_model(spec)

    said = f"{spec.path} has no value head yet: it starts at zero"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert model.value_head.weight.shape == (1, 16)
    assert not any(parameter.any() for parameter in model.value_head.parameters())


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"])
def test_both_heads_read_one_forward_and_say_what_each_says_alone(
    model_folder, batch, architecture, packing
):
    scorer = TorchScorer(
        ModelSpec(model_folder(architecture), dtype="float64"),
        ForwardOptions(packing=packing),
        head="lm+value",
    )
    model = scorer.model
    torch.nn.init.normal_(model.value_head.weight)
    forwards = []
    model.base_model.register_forward_hook(lambda *_: forwards.append(1))

    both = scorer.forward(batch, BOTH, 0.7)

    values = []
    for context, tokens in zip(batch.context.rows(), batch.tokens.rows(), strict=True):
        states = model.base_model(torch.cat([context, tokens])[None]).last_hidden_state
        values.append(model.value_head(states)[0, len(context) - 1 : -1, 0])
    assert_close(both["values"], torch.cat(values), rtol=0, atol=1e-12)
    assert len(forwards) == 1 + len(batch)
    assert_close(scorer.forward(batch, ["values"], 1.0)["values"], both["values"])
    alone = TorchScorer(scorer.spec, scorer.options).forward(batch, BOTH[:2], 0.7)
    assert torch.equal(alone["logprobs"], both["logprobs"])
    assert torch.equal(alone["entropy"], both["entropy"])


def test_only_the_head_that_is_read_computes(model_folder, batch):
    scorer = TorchScorer(ModelSpec(model_folder("llama")), head="lm+value")
    seen = []
    scorer.model.lm_head.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[1]))
    scorer.model.value_head.register_forward_hook(lambda *_: seen.append("value"))

    scorer.forward(batch, ["values"], 1.0)
    scorer.forward(batch, ["logprobs"], 1.0)

    assert seen == [0, "value", len(batch.tokens.values)]


def test_a_gradient_of_both_heads_is_the_same_for_every_budget_and_packing(model_folder, batch):
    class Sum(OwnCritic):
        def part(self, new, rows):
            return ((new["values"] - 3) ** 2).sum() - new["logprobs"].sum()

    found = []
    for budget, packing in [(10**6, "padded"), (12, "padded"), (12, "packed")]:
        made = trainer_of(
            model_folder("llama"), batch, 0, tokens_per_microbatch=budget, packing=packing
        )
        torch.nn.init.ones_(made.model.value_head.weight)
        made.update(batch, ["logprobs", "values"], 1.0, Sum(), 0)
        found.append(made.weights())

    assert_close(found[1], found[0], rtol=0, atol=1e-10)
    assert_close(found[2], found[0], rtol=0, atol=1e-10)


def test_a_saved_model_is_a_language_model_with_its_value_head_beside_it(
    model_folder, batch, tmp_path, capfd
):
    trainer = trainer_of(model_folder("llama"), batch)
    capfd.readouterr()

    trainer.save(str(tmp_path))

    assert capfd.readouterr() == ("", "")
    plain, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report.values())
    assert plain.state_dict().keys() == load_model(ModelSpec(str(tmp_path))).state_dict().keys()
    assert load_file(tmp_path / "value_head.safetensors").keys() == {"weight", "bias"}
    again = TorchScorer(ModelSpec(str(tmp_path), dtype="float64"), head="lm+value")
    want = trainer.forward(batch, BOTH, 1.0)
    assert want["values"].any()
    assert_close(again.forward(batch, BOTH, 1.0), want, rtol=0, atol=0)


def test_states_and_snapshots_have_both_heads(model_folder, batch):
    trainer = trainer_of(model_folder("llama"), batch)
    other = trainer_of(model_folder("llama"), batch, updates=0)
    want = trainer.forward(batch, BOTH, 1.0)

    other.load_state_dict(trainer.state_dict())
    copy = trainer.snapshot()
    trainer.update(batch, ["logprobs", "values"], 1.0, OwnCritic(), 2)

    assert_close(other.forward(batch, BOTH, 1.0), want, rtol=0, atol=0)
    assert_close(copy.forward(batch, BOTH, 1.0), want, rtol=0, atol=0)
    assert not torch.equal(trainer.forward(batch, BOTH, 1.0)["values"], want["values"])


def test_bfloat16_values_are_near_those_of_float32(model_folder, batch):
    found = {}
    for dtype in ("float32", "bfloat16"):
        scorer = TorchScorer(ModelSpec(model_folder("llama"), dtype=dtype), head="lm+value")
        torch.nn.init.constant_(scorer.model.value_head.weight, 0.5)
        found[dtype] = scorer.forward(batch, ["values"], 1.0)["values"]

    assert found["bfloat16"].dtype == torch.float32
    assert_close(found["bfloat16"], found["float32"], rtol=0.05, atol=0.1)


@pytest.mark.parametrize("head", [None, "lm+value"])
def test_a_generator_takes_the_language_model_of_two_heads(model_folder, tokenizer, batch, head):
    trainer = trainer_of(model_folder("llama"), batch)
    generator = HFGenerator(ModelSpec(model_folder("llama"), head, "float64"), tokenizer)

    generator.load(trainer.weights(), 2)
    ((done,),) = generator.generate([Request([5, 6], seed=0)], Sampling(max_tokens=4))

    row = [Ragged.of_rows([ids], torch.int64) for ids in ([5, 6], done.tokens)]
    want = trainer.forward(Sequences(*row), ["logprobs"], 1.0)["logprobs"]
    assert_close(torch.tensor(done.logprobs, dtype=torch.float64), want)


def test_a_reward_is_no_value(model_folder, batch):
    scorer = TorchScorer(ModelSpec(model_folder("llama")), head="lm+value")

    with pytest.raises(EngineError, match="`rewards` needs a model with a scalar head"):
        scorer.forward(batch, ["rewards"], 1.0)


def test_a_value_head_of_another_model_is_refused(model_folder, batch, tmp_path):
    trainer_of(model_folder("llama"), batch, updates=0).save(str(tmp_path))
    save_file({"weight": torch.zeros(1, 8)}, tmp_path / "value_head.safetensors")

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path), "lm+value"))

    assert str(error.value).replace(str(tmp_path), "TMP") == snapshot("""\
`TMP/value_head.safetensors` holds weight [1, 8]; the value head of this model needs bias [1], weight [1, 16]
help: it belongs to another model: remove it, and the head starts at zero\
""")


def test_a_broken_value_head_is_refused(model_folder, batch, tmp_path):
    trainer_of(model_folder("llama"), batch, updates=0).save(str(tmp_path))
    (tmp_path / "value_head.safetensors").write_bytes(b"broken")

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path), "lm+value"))

    assert str(error.value).splitlines()[0].startswith(f"`{tmp_path}/value_head.safetensors` holds")


@fl.program
def own_critic(target: fl.Model, policy: fl.Model, prompts: fl.Prompts):
    before = ops.snapshot(policy)
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=2))
    values = ops.values(policy, rollouts)
    returns = ops.discounted_returns(ops.token_rewards(scores, rollouts.mask), rollouts.mask)

    def loss(new):
        actor = ops.reinforce(new.logprobs, returns - values)
        error = ops.clipped_value(new.values, values, returns)
        return ops.token_mean(actor, rollouts.mask) + 0.5 * ops.token_mean(error, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    target = ops.ema(target, policy, decay=0.75)
    moved = (ops.values(policy, rollouts) - ops.values(before, rollouts)).abs()
    kept = ops.values(target, rollouts).abs()
    sampled = ops.logprobs(before, rollouts) - rollouts.logprobs
    stats |= {"moved": moved.mean(mask=rollouts.mask), "kept": kept.mean(mask=rollouts.mask)}
    return target, policy, stats | {"gap": sampled.abs().max(mask=rollouts.mask)}


def test_an_own_critic_is_sampled_copied_and_averaged(model_folder, tokenizer):
    traced = fl.trace(own_critic)
    roles = steps.roles(traced, model_folder)
    made = steps.executor(traced, roles, tokenizer)

    carry, metrics = steps.run(made, {"prompts": steps.Texts(tokenizer)}, steps=2)

    after = steps.weights(carry)
    assert metrics["moved"] > 0.01
    assert metrics["gap"] < 1e-4
    assert after["policy", "value_head.weight"].any()
    assert metrics["kept"] > 0


def test_an_own_critic_in_a_session_equals_the_compiled_one(model_folder, tokenizer):
    traced = fl.trace(own_critic)
    made = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    texts = steps.Texts(tokenizer, steps.TEXTS[:4])
    carry, expected = steps.run(made, {"prompts": texts})

    tokenizer.save_pretrained(model_folder("llama"))
    score = lambda completions: steps.letters(("reward",), (), completions, (), 0, {}).values[0]
    sampling = Sampling(max_tokens=6)
    with fl.session(rewards={"reward": score}, sampling=sampling, optimizer=steps.SMOOTH) as eager:
        roles = ("target", "policy")
        models = [eager.model(r, model_folder("llama"), head="lm+value") for r in roles]
        *_, metrics = own_critic(*models, eager.prompts(list(texts.texts)))
        trained = eager.host.models["policy"].engine.weights()

        assert {name: float(metrics[name]) for name in ("moved", "gap")} == {
            name: float(expected[name]) for name in ("moved", "gap")
        }
        assert_close(trained, dict(carry["policy"].engine.weights()), rtol=0, atol=0)
