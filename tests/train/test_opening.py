"""How long prompts may be in a run: told before a model is loaded."""

import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError

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
help: raise it, or set `max_prompt_tokens = 2` and `on_long_prompt` to "skip" or "truncate_left"\
""",
            """\
the prompt has 3 tokens; `engines.policy.generate.vllm.max_model_len` = 9 leaves 2 beside 7 of a completion
  train.jsonl:1
help: raise it, or set `max_prompt_tokens = 2` and `on_long_prompt` to "skip" or "truncate_left"\
""",
        ]
    )
