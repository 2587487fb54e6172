"""Rows that can't be used, and rewards that are not there, are told before a model is loaded."""

import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError, RewardError
from tests.train.conftest import ROWS, make_tokenizer

EVAL = "\n[eval]\nmax_tokens = 7\n[eval.data]\nlimit = 2\n"


def test_prompts_that_leave_an_engine_no_room_end_a_run_before_it_loads(folder):
    found = []
    for length in (8, 9):  # prompts have 3 tokens, completions 6 and 7
        sets = (
            "engines.policy.generate.engine=vllm",
            f"engines.policy.generate.vllm.max_model_len={length}",
        )
        with pytest.raises(DataError) as error:
            folder.run("grpo", *sets, added=EVAL)
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
the prompt has 3 tokens; `engines.policy.generate.vllm.max_model_len` = 8 leaves 2 beside 6 of a completion
  train.jsonl:1
  run.toml:14
   14 | [data]
         ^^^^
help: raise it, or set `max_prompt_tokens = 2` and `on_long_prompt` to "skip" or "truncate_left"\
""",
            """\
the prompt has 3 tokens; `engines.policy.generate.vllm.max_model_len` = 9 leaves 2 beside 7 of a completion
  train.jsonl:1
  run.toml:34
   34 | [eval.data]
              ^^^^
help: raise it, or set `max_prompt_tokens = 2` and `on_long_prompt` to "skip" or "truncate_left"\
""",
        ]
    )


def test_data_that_end_before_the_run_does(refused):
    assert refused("grpo", "data.epochs=1", "train.steps=3", kind=DataError) == snapshot("""\
the run draws 12 rows (`train.steps` = 3 x `train.prompts_per_step` = 4), and there are 8: `epochs` = 1 x 8 rows
train.jsonl
  run.toml:14
   14 | [data]
         ^^^^
help: raise `epochs`, leave it out to go on for ever, or train fewer steps\
""")


def test_a_column_that_no_row_has(folder, refused):
    folder.write_rows("train.jsonl", [{"prompt": row["prompt"]} for row in ROWS])

    assert refused("grpo", kind=DataError) == snapshot("""\
column `answer` is missing; the row has `prompt`; the reward `reward` needs it
train.jsonl:1
  run.toml:14
   14 | [data]
         ^^^^
help: a reward reads `prompts`, `completions` and columns by name; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


def test_a_column_that_one_row_lacks(folder, refused):
    rows = [dict(row) for row in ROWS * 3]
    del rows[12]["answer"]
    folder.write_rows("train.jsonl", rows)

    assert refused("grpo", kind=DataError) == snapshot("""\
column `answer` is missing; the row has `prompt`, `completion`, `chosen`, `rejected`; the reward `reward` needs it
train.jsonl:13
  run.toml:14
   14 | [data]
         ^^^^
help: a reward reads `prompts`, `completions` and columns by name; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


def test_a_data_source_without_a_reward_function(folder, refused):
    rows = [{**row, "data_source": "sums"} for row in ROWS]
    folder.write_rows("train.jsonl", [*rows, {**ROWS[0], "data_source": "songs"}])
    routed = '[reward.reward.function]\nsums = "reward.py:vowels"\nproofs = "reward.py:vowels"'

    assert refused("grpo", kind=RewardError, reward=routed) == snapshot("""\
no reward function goes by `data_source` = 'songs'
  train.jsonl:9 (row 8)
  run.toml:14
   14 | [data]
         ^^^^
help: the known ones are 'sums', 'proofs'\
""")


def test_held_out_rows_that_lack_a_column_of_the_training_rows(folder, refused):
    folder.write_rows("heldout.jsonl", [{"prompt": "a:"}])
    added = '[eval.data]\nsource = "heldout.jsonl"\n'

    assert refused("grpo", kind=DataError, added=added) == snapshot("""\
column `answer` is missing; the row has `prompt`; the reward `reward` needs it
heldout.jsonl:1
  run.toml:31
   31 | [eval.data]
              ^^^^
help: a reward reads `prompts`, `completions` and columns by name; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


CHAT = "{% for m in messages %}...{{ m.content }}.{% endfor %}{% if add_generation_prompt %}={% endif %}"


@pytest.fixture
def long_rows(folder, make_model):
    """Rows of 10 short prompts and, of 64 tokens once templated, 1 too long, 1 just fitting."""
    short = [{"prompt": "ab", "answer": "a"} for _ in range(10)]
    folder.write_rows(
        "train.jsonl",
        [*short, {"prompt": "a" * 60, "answer": "a"}, {"prompt": "b" * 59, "answer": "b"}],
    )
    folder.model = make_model(make_tokenizer(chat_template=CHAT))
    return folder


LIMIT = ("data.chat=true", "data.max_prompt_tokens=64")


def test_the_prompt_tokens_that_are_sent_are_those_that_count(long_rows, refused):
    assert refused("grpo", *LIMIT, kind=DataError) == snapshot("""\
the prompt has 65 tokens; the limit is 64
train.jsonl:11
  run.toml:14
   14 | [data]
         ^^^^
help: raise `max_prompt_tokens`, or set `on_long_prompt` to "skip" or "truncate_left"\
""")


def test_long_prompts_can_be_skipped_or_cut(long_rows, capsys, sent):
    long_rows.run("grpo", *LIMIT, 'data.on_long_prompt="skip"', "train.prompts_per_step=11")
    assert capsys.readouterr().out.splitlines()[1] == snapshot(
        "`policy` samples with the tensors that train: no weights move"
    )
    assert max(map(len, sent)) == 64

    long_rows.clean()
    sent.clear()
    long_rows.run(
        "grpo",
        *LIMIT,
        'data.on_long_prompt="truncate_left"',
        "train.prompts_per_step=12",
        "train.steps=1",
    )
    assert sorted(map(len, sent))[-3:] == [7, 64, 64]


def test_no_row_left_is_an_error(long_rows, refused):
    error = refused(
        "grpo", "data.max_prompt_tokens=1", 'data.on_long_prompt="skip"', kind=DataError
    )

    assert error == snapshot("""\
no row is left
train.jsonl: 0 rows, 12 skipped: 12 long prompt (train.jsonl:1, train.jsonl:2, train.jsonl:3, ...)
  run.toml:14
   14 | [data]
         ^^^^\
""")


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_a_reward_that_is_not_there_is_told_with_its_line(executor, folder):
    with pytest.raises(RewardError) as refused:
        folder.run(
            "grpo", f'cluster.executor="{executor}"', reward='[reward]\nreward = "reward.py:none"'
        )

    assert str(refused.value) == snapshot("""\
`reward.py` has no function `none`
  run.toml:18
   18 | reward = "reward.py:none"
        ^^^^^^
help: it has `vowels`\
""")


def test_of_several_rewards_the_one_that_fails_is_told_with_its_line(refused):
    table = '[reward]\nlength = "reward.py:vowels"\nreward = "reward.py:vowel"'

    assert refused("grpo", kind=RewardError, reward=table) == snapshot("""\
`reward.py` has no function `vowel` (did you mean `vowels`?)
  run.toml:19
   19 | reward = "reward.py:vowel"
        ^^^^^^
help: it has `vowels`\
""")


def test_a_server_that_is_not_there_is_told_with_its_line_alone(refused):
    table = '[reward]\nlength = "reward.py:vowels"\nreward = "http://no.invalid/score"'

    told = refused("grpo", kind=RewardError, reward=table)

    assert "length" not in told
    assert ' | reward = "http://no.invalid/score"\n' in told
