import json

import pytest
from inline_snapshot import snapshot

from flowrl.data.record import RowError
from flowrl.data.spec import DataSpec
from flowrl.errors import DataError
from tests.data.conftest import CHAT, make_tokenizer


def jsonl(rows):
    return "\n".join(map(json.dumps, rows))


def prompts(data):
    return [row.prompt for row in data.cursor().take(data.rows).rows]


def test_no_column_that_the_reward_needs_is_an_error_at_opening(opened, written):
    written("a.jsonl", jsonl([{"prompt": str(n), "answers": n} for n in range(20)]))

    with pytest.raises(DataError) as caught:
        opened("a.jsonl", needs={"answer": "the reward `exact`"})

    assert str(caught.value) == snapshot("""\
column `answer` is missing (did you mean `answers`?); the row has `prompt`, `answers`; the reward `exact` needs it
a.jsonl:1
help: a reward reads `prompts`, `completions` and columns by name; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


@pytest.mark.parametrize("row", [{"prompt": "p"}, {"prompt": "p", "answer": None}])
def test_one_row_without_the_column_is_named(opened, written, row):
    rows = [{"prompt": str(n), "answer": n} for n in range(20)]
    rows[12] = row
    written("a.jsonl", jsonl(rows))

    with pytest.raises(RowError, match=r"column `answer`") as caught:
        opened("a.jsonl", needs={"answer": "the reward `exact`"})

    assert caught.value.where == "a.jsonl:13"
    assert opened("a.jsonl", needs={"answer": "the reward `exact`"}, on_bad_row="skip").rows == 19


LONG = [{"prompt": "x" * 5}] * 10 + [{"prompt": "x" * n} for n in (60, 50, 63)]


def test_long_prompts_are_counted_in_the_ids_that_are_sent(opened, written):
    written("a.jsonl", jsonl(LONG))

    data = opened("a.jsonl", max_prompt_tokens=50, on_long_prompt="skip")

    assert data.sentence() == snapshot(
        "a.jsonl: 10 rows, 3 skipped: 3 long prompt (a.jsonl:11, a.jsonl:12, a.jsonl:13)"
    )
    with pytest.raises(RowError) as caught:
        opened("a.jsonl", max_prompt_tokens=50)
    assert str(caught.value) == snapshot("""\
the prompt has 61 tokens; the limit is 50
a.jsonl:11
help: raise `max_prompt_tokens`, or set `on_long_prompt` to "skip" or "truncate_left"\
""")


def test_the_chat_template_counts_as_prompt(opened, written, chat_tokenizer):
    written("a.jsonl", jsonl([{"prompt": "x" * 59}, {"prompt": "x" * 58}]))

    data = opened(
        "a.jsonl", by=chat_tokenizer, chat=True, max_prompt_tokens=63, on_long_prompt="skip"
    )

    (context,) = data.cursor().take(1).context.rows()
    assert len(context) == 63
    assert data.skipped == {"long prompt": 1}


TOOLS = "{% for tool in tools or [] %}{{ tool.name }}{% endfor %}"


def test_the_schema_of_a_rows_tools_counts_as_prompt(opened, written):
    rows = [{"prompt": "x" * 3}, {"prompt": "x" * 3, "tools": [{"name": "t" * 40}]}]
    written("a.jsonl", jsonl(rows))

    with pytest.raises(RowError) as caught:
        opened("a.jsonl", by=make_tokenizer(template=TOOLS + CHAT), chat=True, max_prompt_tokens=40)

    assert str(caught.value).splitlines()[:2] == snapshot(
        ["the prompt has 48 tokens; the limit is 40", "a.jsonl:2"]
    )


@pytest.mark.parametrize("tools", ['[{"name": "add"}]', 3])
def test_tools_that_a_template_can_not_write_are_an_error_of_their_row(opened, written, tools):
    written("a.jsonl", jsonl([{"prompt": "x"}, {"prompt": "x", "tools": tools}]))

    with pytest.raises(
        RowError, match="the chat template refuses the messages and tools"
    ) as caught:
        opened("a.jsonl", by=make_tokenizer(template=TOOLS + CHAT), chat=True)

    assert caught.value.where == "a.jsonl:2"


def test_a_template_that_fails_is_an_error_of_the_row(opened, written):
    written("a.jsonl", jsonl([{"prompt": "x"}]))
    template = "{% for tool in tools %}{% endfor %}" + CHAT  # None, where there are none

    with pytest.raises(RowError, match="refuses the messages: 'NoneType' object is not iterable"):
        opened("a.jsonl", by=make_tokenizer(template=template), chat=True)


def test_truncation_keeps_the_last_ids_and_the_prompt_says_what_is_read(opened, written):
    written("a.jsonl", jsonl([{"prompt": "abcdefgh"}]))

    batch = opened("a.jsonl", max_prompt_tokens=3, on_long_prompt="truncate_left").cursor().take(1)

    assert batch.context.lengths[0].tolist() == [3]
    assert batch.rows[0].prompt == "fgh"


def test_no_row_left_is_an_error(opened, written):
    written("a.jsonl", jsonl(LONG[-3:]))

    with pytest.raises(DataError) as caught:
        opened("a.jsonl", max_prompt_tokens=5, on_long_prompt="skip")

    assert str(caught.value) == snapshot("""\
no row is left
a.jsonl: 0 rows, 3 skipped: 3 long prompt (a.jsonl:1, a.jsonl:2, a.jsonl:3)\
""")


def test_skipping_more_rows_than_there_are_is_an_error(opened, written):
    written("a.jsonl", '{"prompt": "a"}\n{"prompt": "b"}')

    with pytest.raises(DataError) as caught:
        opened("a.jsonl", skip_rows=2)

    assert str(caught.value) == snapshot("""\
`skip_rows` = 2 leaves nothing: the source has 2 rows to draw
the last is a.jsonl:2
help: lower `skip_rows`\
""")


def test_an_empty_file_is_an_error(opened, written):
    written("a.jsonl", "")

    with pytest.raises(DataError) as caught:
        opened("a.jsonl")

    assert str(caught.value) == snapshot("""\
no row is left
a.jsonl: 0 rows\
""")


def test_rows_that_repeat_are_dropped_ignoring_case(opened, written):
    written("a.jsonl", jsonl([{"prompt": word} for word in ("Tom", "tom", "Ann", "TOM")]))

    data = opened("a.jsonl", unique_key="prompt", shuffle=False)

    assert prompts(data) == ["Tom", "Ann"]
    assert data.sentence() == snapshot(
        "a.jsonl: 2 rows, 2 skipped: 2 duplicate (a.jsonl:2, a.jsonl:4)"
    )


def test_slices_of_one_source_share_no_content(opened):
    keys = {
        "source": "reasoning_gym:spell_backward",
        "options": {"size": 300, "seed": 1, "min_word_len": 3, "max_word_len": 3},
        "unique_key": "question",
    }

    heldout = opened(**keys, limit=50)
    train = opened(**keys, skip_rows=50)

    seen = [{prompt.lower() for prompt in prompts(data)} for data in (heldout, train)]
    assert not seen[0] & seen[1]
    assert train.skipped["duplicate"] > 0
    assert len(seen[0]) == heldout.rows == 50
    assert len(seen[1]) == train.rows


def test_excluded_contents_of_another_draw_do_not_appear(opened):
    source = "reasoning_gym:spell_backward"
    options = {"size": 300, "seed": 1, "min_word_len": 3, "max_word_len": 3}
    heldout = opened(source, options={**options, "seed": 2})

    train = opened(source, options=options, unique_key="question", exclude=f"{source}?seed=2")

    held = {prompt.lower() for prompt in prompts(heldout)}
    assert train.skipped["excluded"] > 0
    assert not held & {prompt.lower() for prompt in prompts(train)}


def test_exclude_without_unique_key_is_an_error(opened, written):
    written("a.jsonl", '{"prompt": "a"}')

    with pytest.raises(DataError) as caught:
        opened("a.jsonl", exclude="a.jsonl")

    assert str(caught.value) == snapshot(
        "`exclude` needs `unique_key`, the column by which rows are told apart"
    )


def test_a_slice_reads_no_further_than_it_must(opened, written):
    written("a.jsonl", '{"prompt": "a"}\n{"prompt": "b"}\nnot JSON')

    assert prompts(opened("a.jsonl", skip_rows=1, limit=1)) == ["b"]


@pytest.mark.parametrize(
    "keys",
    [
        {"limit": 0},
        {"skip_rows": -1},
        {"epochs": 0},
        {"max_prompt_tokens": 0},
        {"on_bad_row": "drop"},
        {"on_long_prompt": "truncate"},
        {"examples": [{"prompt": "a"}]},
    ],
)
def test_a_setting_out_of_range_names_its_key(keys):
    with pytest.raises(DataError, match=f"`{next(iter(keys))}`"):
        DataSpec("a.jsonl", **keys)
