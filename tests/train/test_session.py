"""What a session accepts; `tests/runtime/graph/test_eager.py` runs programs in one."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.runtime.engine import Sampling
from flowrl.runtime.training.schedule import TrainerOptions
from tests.train.judges import make_judge, merging_tokenizer, piped


def test_a_session_is_a_class():
    assert isinstance(fl.session, type)
    assert "session" in fl.__all__
    with pytest.raises(AttributeError, match="'flowrl' has no attribute 'sesion'"):
        fl.sesion  # noqa: B018


def test_options_are_the_fields_of_their_classes_or_a_mapping_of_them():
    sampling = {"max_tokens": 4, "stop": ("a",)}
    optimizer = {"learning_rate": 1, "betas": (0.9, 0.95)}

    with fl.session(sampling=sampling, optimizer=optimizer) as made:
        assert made.sampling == Sampling(max_tokens=4, stop=("a",))
        assert made.optimizer == TrainerOptions(learning_rate=1.0, betas=(0.9, 0.95))
    with fl.session(sampling=Sampling(top_k=3)) as made:
        assert made.sampling == Sampling(top_k=3)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": {"max_toknes": 4}},
        {"sampling": {"max_tokens": "4"}},
        {"optimizer": {"learning_rate": -1.0}},
        {"optimizer": 1e-5},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(fl.FlowrlError) as refused:
        fl.session(**options)

    assert str(refused.value) in snapshot(
        [
            """\
unknown key `max_toknes` in [sampling] (did you mean `max_tokens`?)
  sampling={'max_toknes': 4}
help: the keys of [sampling] are temperature, top_p, top_k, max_tokens, min_tokens, stop, stop_tokens\
""",
            """\
`sampling.max_tokens` must be an integer; got "4"
  sampling={'max_tokens': '4'}\
""",
            """\
`optimizer.learning_rate` must be at least 0; got -1.0
  optimizer={'learning_rate': -1.0}\
""",
            """\
`optimizer` must be a table; got 1e-05
  optimizer=1e-05\
""",
        ]
    )


@pytest.fixture
def judged(tmp_path, model):
    """A session with a policy, and a reward model with another tokenizer."""
    folder = make_judge(tmp_path / "judge", merging_tokenizer())
    with fl.session(sampling={"max_tokens": 4}) as made:
        judge = made.model("helpful", str(folder), head="reward")
        yield made, made.model("policy", str(model)), judge, folder


def test_a_reward_model_of_a_session_reads_text_and_gives_the_reward_of_its_name(judged):
    made, policy, judge, folder = judged
    rollouts = ops.generate(policy, made.prompts(["a0:", "b1:"]), n=2)

    _, given = ops.score(judge, rollouts)
    _, named = ops.score("helpful", rollouts)

    texts = [
        made.tokenizer.decode(row, skip_special_tokens=True) for row in rollouts.tokens.data.rows()
    ]
    whole = [
        f"{prompt}{text}" for prompt, text in zip(["a0:", "a0:", "b1:", "b1:"], texts, strict=True)
    ]
    assert given.data.values.tolist() == pytest.approx(piped(folder, whole), abs=1e-5)
    assert named.data.values.tolist() == given.data.values.tolist()


def test_a_reward_model_with_another_tokenizer_is_not_trained(judged):
    made, policy, judge, _ = judged
    rollouts = ops.generate(policy, made.prompts(["a0:"]), n=2)

    with pytest.raises(EngineError) as refused:
        ops.update(judge, lambda new: new.rewards.mean(), rollouts)

    assert str(refused.value) == snapshot("""\
update: `helpful` has another tokenizer than these completions: it can only be frozen, and give one reward a sample
  test_session.py:99
   99 |         ops.update(judge, lambda new: new.rewards.mean(), rollouts)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: take a model with the same tokenizer\
""")


def test_a_session_trains_an_adapter_and_samples_with_it(model):
    with fl.session(sampling={"max_tokens": 8}, optimizer={"learning_rate": 0.5}) as made:
        policy = made.model("policy", str(model), lora={"rank": 2, "targets": ("q_proj",)})
        prompts = made.prompts(["a0:", "b1:"])
        rollouts = ops.generate(policy, prompts, n=2)
        policy, _ = ops.update(
            policy, lambda new: ops.token_mean(new.logprobs, rollouts.mask), rollouts
        )

        again = ops.generate(policy, prompts, n=2)

        found = ops.logprobs(policy, again).data.values
        assert found.tolist() == pytest.approx(again.logprobs.data.values.tolist(), abs=1e-4)
        engine = policy.data.engine
        assert {name.split(".")[-4] for name in engine.weights()} == {"q_proj"}
        assert any(weight.any() for name, weight in engine.weights().items() if "lora_B" in name)
    with pytest.raises(fl.FlowrlError, match="unknown key `ranks`"), fl.session() as made:
        made.model("policy", str(model), lora={"ranks": 2})
