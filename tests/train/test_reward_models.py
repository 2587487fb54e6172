"""Rewards that models give, bound to a name in the run file or handed to the program."""

import pytest
import torch
from inline_snapshot import snapshot
from transformers import LlamaForSequenceClassification

from flowrl.config.run_file import load_run_file
from flowrl.errors import DataError, EngineError, FlowrlError, RewardError, RunFileError
from flowrl.report.check import checked
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.graph.reading import TextReader
from flowrl.train.evaluate import eval_checkpoint
from flowrl.train.prepare import lower
from tests.train.conftest import ROWS, make_tokenizer
from tests.train.judges import TURNS, make_judge, merging_tokenizer, piped

HELPFUL = '[reward]\nhelpful = { model = "judge" }'
REINFORCE = """
import flowrl as fl
from flowrl import ops

@fl.program
def reinforce(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("helpful", ops.generate(policy, prompts, n=2))
    advantages = ops.group_advantage(rewards)
    policy, stats = ops.update(
        policy, lambda new: ops.token_mean(-new.logprobs * advantages, rollouts.mask), rollouts
    )
    return policy, stats
"""
HANDED = REINFORCE.replace("policy: fl.Model,", "policy: fl.Model, judge: fl.Model,").replace(
    '"helpful", ', "judge, "
)
SEVERAL = REINFORCE.replace(
    'ops.score("helpful", ops.generate(policy, prompts, n=2))',
    'ops.score("both", ops.generate(policy, prompts, n=2), names=("blunt", "vowels", "helpful"))',
).replace("rewards)", "ops.combine_rewards(rewards))")
JUDGE = '[models.judge]\npath = "judge"'


@pytest.fixture
def judged(folder):
    """A run's folder with a reward model of another tokenizer, and programs that score by it."""
    make_judge(folder.path / "judge", merging_tokenizer())
    for name, text in (("reinforce", REINFORCE), ("handed", HANDED), ("several", SEVERAL)):
        (folder.path / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def refused(judged):
    """Return the error that a run ends with."""

    def error(kind, program="reinforce.py", *sets, **parts):
        with pytest.raises(FlowrlError) as raised:
            judged.run(program, *sets, **parts)
        assert type(raised.value) is kind
        return str(raised.value).replace(str(judged.path), "FOLDER")

    return error


def rewards(records, name="helpful"):
    return [record["rewards"][name] for record in records]


def test_a_reward_model_with_another_tokenizer_scores_text_as_transformers_does(judged):
    judged.run("reinforce.py", "log.samples=8", reward=HELPFUL)

    texts = [record["prompt"] + record["completion"] for record in judged.sampled]
    assert rewards(judged.sampled) == pytest.approx(piped(judged.path / "judge", texts), abs=1e-5)
    assert len(set(rewards(judged.sampled))) == 3 * 8


def test_chat_messages_go_through_the_chat_template_of_the_reward_model(judged, make_model):
    asked = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a+b"}]
    judged.write_rows("train.jsonl", [{"prompt": asked}] * 4)
    judged.model = make_model(make_tokenizer(chat_template="{% for m in messages %}.{% endfor %}"))
    own = merging_tokenizer(chat_template=TURNS)
    make_judge(judged.path / "judge", own)

    judged.run("reinforce.py", "log.samples=8", reward=HELPFUL)

    answers = [{"role": "assistant", "content": r["completion"]} for r in judged.sampled]
    texts = [own.apply_chat_template([*asked, a], tokenize=False) for a in answers]
    assert texts[0].startswith("<s>system: be kind</s><s>user: a+b</s><s>assistant: ")
    expected = piped(judged.path / "judge", texts, add_special_tokens=False)
    assert rewards(judged.sampled) == pytest.approx(expected, abs=1e-5)


def test_a_text_prompt_is_the_users_turn_of_that_template(judged):
    own = merging_tokenizer(chat_template=TURNS)
    make_judge(judged.path / "judge", own)

    judged.run("reinforce.py", "log.samples=8", reward=HELPFUL)

    texts = [
        f"<s>user: {r['prompt']}</s><s>assistant: {r['completion']}</s>" for r in judged.sampled
    ]
    expected = piped(judged.path / "judge", texts, add_special_tokens=False)
    assert rewards(judged.sampled) == pytest.approx(expected, abs=1e-5)


def test_the_reward_is_that_of_the_last_token_that_is_no_padding(judged):
    own = merging_tokenizer()
    make_judge(judged.path / "judge", own, padding=own.pad_token_id)  # which ends each text

    judged.run("reinforce.py", "log.samples=8", reward=HELPFUL)

    texts = [record["prompt"] + record["completion"] for record in judged.sampled]
    assert rewards(judged.sampled) == pytest.approx(piped(judged.path / "judge", texts), abs=1e-5)


def test_a_reward_model_with_the_same_tokenizer_reads_tokens(judged, monkeypatch):
    make_judge(judged.path / "judge", make_tokenizer())
    monkeypatch.setattr(TextReader, "__call__", None)

    judged.run("reinforce.py", "log.samples=8", reward=HELPFUL)

    plain = [r for r in judged.sampled if len(r["completion"]) == 6]  # none ended by <eos>
    texts = [record["prompt"] + record["completion"] for record in plain]
    assert rewards(plain) == pytest.approx(piped(judged.path / "judge", texts), abs=1e-5)


def test_a_model_of_the_program_scores_as_one_bound_to_a_name_does(judged):
    named = judged.run("reinforce.py", reward=HELPFUL)
    judged.clean()

    handed = judged.run("handed.py", models=JUDGE)

    losses = [[record["policy/loss"] for record in records] for records in (named, handed)]
    assert losses[0] == losses[1]


def test_functions_and_models_give_rewards_side_by_side(judged):
    make_judge(judged.path / "other", merging_tokenizer(), seed=2)
    three = f'{HELPFUL}\nvowels = "reward.py:vowels"\nblunt = {{ model = "other" }}'

    judged.run("several.py", "log.samples=8", reward=three)

    texts = [record["prompt"] + record["completion"] for record in judged.sampled]
    for name, folder in (("helpful", "judge"), ("blunt", "other")):
        expected = piped(judged.path / folder, texts)
        assert rewards(judged.sampled, name) == pytest.approx(expected, abs=1e-5)
    assert list(judged.sampled[0]["rewards"]) == ["blunt", "vowels", "helpful"]
    assert all(x * 4 == int(x * 4) for x in rewards(judged.sampled, "vowels"))


@pytest.mark.parametrize("program", ["reinforce.py", "sft"])
def test_an_evaluation_reports_the_reward_of_a_model(judged, program):
    judged.write_rows("heldout.jsonl", ROWS[:3])
    added = '[eval]\nevery_steps = 1\n[eval.data]\nsource = "heldout.jsonl"\n'

    records = judged.run(program, reward=HELPFUL, added=added)

    found = [record["eval/reward"] for record in records if "eval/reward" in record]
    path, checkpoint = str(judged.path / "run.toml"), str(judged.path / "out" / "checkpoint")
    again = eval_checkpoint(path, checkpoint, say=lambda _: None)
    assert len(set(found)) == 4
    assert again["eval/reward"] == pytest.approx(found[-1], rel=1e-5)


def test_a_reward_model_is_never_trained_and_never_saved(judged):
    judged.run("reinforce.py", reward=HELPFUL)

    saved = sorted(path.name for path in (judged.path / "out" / "checkpoint").iterdir())
    assert saved == ["policy", "state.json"]


def test_it_reads_microbatches_that_its_engine_sets_by_its_name(judged, monkeypatch):
    rows, run = [], TorchScorer._run

    def spy(self, part, outputs, temperature):
        rows.extend([len(part.rows)] * (self.role == "helpful"))
        return run(self, part, outputs, temperature)

    monkeypatch.setattr(TorchScorer, "_run", spy)
    plain = judged.run("reinforce.py", reward=HELPFUL)
    judged.clean()

    small = judged.run(
        "reinforce.py", "engines.helpful.train.tokens_per_microbatch=1", reward=HELPFUL
    )

    assert rows == [8] * 3 + [1] * 24
    assert [r["policy/loss"] for r in small] == pytest.approx(
        [r["policy/loss"] for r in plain], abs=1e-5
    )


def test_an_unknown_key(refused):
    parts = {"reward": '[reward.helpful]\nmodel = "judge"\nhed = "reward"'}

    assert refused(RunFileError, **parts) == snapshot("""\
unknown key `hed` in [reward.helpful] (did you mean `head`?)
  run.toml:18
   18 | hed = "reward"
        ^^^
help: the keys of [reward.helpful] are model, head, dtype\
""")


def test_a_head_that_gives_no_reward(refused):
    parts = {"reward": '[reward.helpful]\nmodel = "judge"\nhead = "lm"'}

    assert refused(RunFileError, **parts) == snapshot("""\
`reward.helpful.head` must be one of "reward", "token_reward"; got "lm"
  run.toml:18
   18 | head = "lm"
        ^^^^\
""")


def test_a_name_bound_to_both_a_function_and_a_model(refused):
    parts = {"reward": '[reward.helpful]\nmodel = "judge"\nfunction = "reward.py:vowels"'}

    assert refused(RunFileError, **parts) == snapshot("""\
`reward.helpful` names both a model and a function
  run.toml:17
   17 | model = "judge"
        ^^^^^
  run.toml:18
   18 | function = "reward.py:vowels"
        ^^^^^^^^
help: leave one of them out; two rewards have two names\
""")


def test_a_name_that_a_model_of_the_program_has(refused):
    text = '[reward]\nhelpful = { model = "judge" }\njudge = { model = "judge" }'

    assert refused(RunFileError, "handed.py", models=JUDGE, reward=text) == snapshot("""\
`judge` names a model of the program and a reward that a model gives
  run.toml:19
   19 | judge = { model = "judge" }
        ^^^^^
  run.toml:8
    8 | [models.judge]
                ^^^^^
help: give one of them another name: each is a role\
""")
    assert refused(RunFileError, "grpo", reward=text.replace("judge =", "reference =")) == snapshot("""\
`reference` names a model of the program and a reward that a model gives
  run.toml:19
   19 | reference = { model = "judge" }
        ^^^^^^^^^
  run.toml:8
    8 | [models.reference]
                ^^^^^^^^^
help: give one of them another name: each is a role\
""")


def test_a_name_that_is_taken(refused):
    text = '[reward]\npolicy = { model = "judge" }\ndata = { model = "judge" }'

    error = refused(RunFileError, "--", reward=text)

    assert error == snapshot("""\
`policy` names a model of the program and a reward that a model gives
  run.toml:17
   17 | policy = { model = "judge" }
        ^^^^^^
  run.toml:6
    6 | [models.policy]
                ^^^^^^
also: `data` can't name a reward that a model gives: it is what reads the data
  run.toml:18
   18 | data = { model = "judge" }
        ^^^^
help: give one of them another name: each is a role\
""")


def test_a_folder_that_is_not_there(refused):
    assert refused(DataError, reward=HELPFUL.replace("judge", "jugde")) == snapshot("""\
`reward.helpful.model`: there is no such model folder
  run.toml:17
   17 | helpful = { model = "jugde" }
                    ^^^^^
jugde
help: give a folder, or a name on the hub: `org/name`\
""")


def test_a_classifier_of_two_labels(refused, judged):
    make_judge(judged.path / "judge", merging_tokenizer(), labels=2)

    assert refused(EngineError, reward=HELPFUL) == snapshot("""\
`reward.helpful.model`: `score.weight` in `FOLDER/judge` is of shape [2, 16]; a LlamaForSequenceClassification here needs [1, 16]
  run.toml:17
   17 | helpful = { model = "judge" }
                    ^^^^^
help: a head gives one number: train one with `head` set, or take another model\
""")


def test_a_folder_without_a_reward_head_would_score_all_0(refused, judged):
    text = HELPFUL.replace('"judge"', f'"{judged.model}"')

    errors = [
        refused(EngineError, reward=text),
        refused(EngineError, "handed.py", models=f'[models.judge]\npath = "{judged.model}"'),
    ]

    assert [error.replace(str(judged.model), "MODEL").partition("\n")[0] for error in errors] == [
        f"`{key}`: `MODEL` has no reward head, and nothing here trains one: all its outputs would be 0"
        for key in ("reward.helpful.model", "models.judge.path")
    ]


def test_a_model_that_gives_no_number_fails_as_a_function_does(refused, judged):
    own, folder = merging_tokenizer(), judged.path / "judge"
    made = LlamaForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():  # of the last row's prompt, "h7:", and of completions that have an h
        made.model.embed_tokens.weight[own.convert_tokens_to_ids("h")] = torch.nan
    made.save_pretrained(folder)
    dropping = HELPFUL.replace("[reward]", '[reward]\non_reward_error = "drop_group"')

    error = refused(RewardError, "reinforce.py", "data.shuffle=false", reward=HELPFUL)
    judged.clean()
    records = judged.run("reinforce.py", "data.shuffle=false", reward=dropping)

    assert error == snapshot("""\
the reward model `helpful` gave nan
  train.jsonl:2 (row 1), sample 0, step 1
help: look for an overflow: try another `dtype` of the model; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")
    assert records[1]["reward/errors"] >= 2
    assert records[1]["policy/grad_norm"] > 0


def test_chat_messages_for_a_reward_model_without_a_chat_template(refused, judged, make_model):
    judged.write_rows("train.jsonl", [{"prompt": [{"role": "user", "content": "a"}]}] * 4)
    judged.model = make_model(make_tokenizer(chat_template="{% for m in messages %}.{% endfor %}"))

    assert refused(EngineError, reward=HELPFUL) == snapshot("""\
the prompt is chat messages, and the tokenizer of `helpful` has no chat template
  train.jsonl:1
help: save a chat template with the reward model, or give it plain prompts\
""")


def test_a_reward_a_token_from_a_model_with_another_tokenizer(refused, judged):
    token = HANDED.replace("n=2))", 'n=2), per="token")')
    token = token.replace("ops.group_advantage(rewards)", "rewards")
    (judged.path / "token.py").write_text(token)

    assert refused(EngineError, "token.py", models=JUDGE) == snapshot("""\
rewards: `judge` has another tokenizer than `policy`, whose tokens it reads
  token.py:7
    7 |     rollouts, rewards = ops.score(judge, ops.generate(policy, prompts, n=2), per="token")
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: take a model with the same tokenizer; a frozen model that gives one reward a sample, `ops.score(model, rollouts)`, may have any\
""")


def test_a_reference_with_another_tokenizer(refused, make_model):
    other = make_model(merging_tokenizer(), vocab_size=300)

    error = refused(EngineError, "grpo", f"models.reference.path={other}")

    assert error == snapshot("""\
logprobs: `reference` has another tokenizer than `policy`, whose tokens it reads
  grpo.py:17
   17 |     anchor = ops.logprobs(reference, rollouts)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: take a model with the same tokenizer; a frozen model that gives one reward a sample, `ops.score(model, rollouts)`, may have any\
""")


def test_a_reward_model_appears_in_the_plan(judged):
    pools = '[cluster.pools.main]\n[cluster.pools.judges]\nroles = ["helpful"]\n'
    path = judged.write("reinforce.py", reward=HELPFUL, added=pools)

    lines = lower(load_run_file(path)).as_text().splitlines()

    assert "\n".join(line for line in lines if "helpful" in line or "@judges" in line) == snapshot("""\
  input %helpful: model<helpful> @judges
  %1: i32[prompt, context] = transfer(%prompts.context) {src=main, dst=judges} @judges  # reinforce.py:7
  %2: i32[prompt, sample, token] = transfer(%0.tokens) {src=main, dst=judges} @judges  # reinforce.py:7
  %3: row[prompt] = transfer(%prompts.rows) {src=main, dst=judges} @judges  # reinforce.py:7
  %4: f32[prompt, sample] = rewards(%helpful, %1, %2, %3) {per=sample} @judges  # reinforce.py:7
  %6 = score(%prompts.rows, %0.tokens, %5) {functions=[helpful], models=[helpful]} @main  # reinforce.py:7
      metrics.policy/logprob_gap_max=%13.logprob_gap_max, metrics.helpful=%14\
""")


def test_a_run_file_with_a_reward_model_is_checked_without_it(judged):
    path = judged.write("reinforce.py", reward=HELPFUL.replace("judge", "nowhere"))

    assert checked(path, ()).startswith("`run.toml` and its program `reinforce` are sound.")
    with pytest.raises(RunFileError, match="unknown key `hed`"):
        checked(path, ("reward.helpful.hed=1",))
