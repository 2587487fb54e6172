"""Prompts without room, and rewards that are not there, are told before a model is loaded."""

import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError, RewardError

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
