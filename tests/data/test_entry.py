import json

import pytest
import torch
from inline_snapshot import snapshot

from flowrl.data.record import RowError
from flowrl.errors import DataError
from flowrl.runtime.rows.rows import ExampleBatch, PairBatch, PromptBatch
from tests.data.conftest import CHAT, TAGGED_CHAT, make_tokenizer

TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "so long"},
]


@pytest.fixture
def batch(opened, written):
    """Open rows of one file and take them all."""

    def call(*rows, **keys):
        written("a.jsonl", "\n".join(map(json.dumps, rows)))
        data = opened("a.jsonl", shuffle=False, **keys)
        return data.cursor().take(data.rows)

    return call


def texts(ragged, tokenizer):
    return [tokenizer.decode(row) for row in ragged.rows()]


def trained(batch, tokenizer):
    """The text of each row's trained tokens, cut where others lie between."""
    return [
        "|".join(
            tokenizer.decode(row[span])
            for span in torch.where(mask)[0].tensor_split(
                torch.where(torch.where(mask)[0].diff() > 1)[0] + 1
            )
        )
        for row, mask in zip(batch.tokens.rows(), batch.mask.rows(), strict=True)
    ]


def test_a_prompt_is_text_with_one_bos(batch, tokenizer):
    got = batch({"prompt": "ab", "x": 1})

    assert isinstance(got, PromptBatch)
    assert texts(got.context, tokenizer) == ["<bos>ab"]
    assert got.rows[0].columns == {"prompt": "ab", "x": 1}


def test_a_template_fills_in_columns(batch):
    got = batch({"q": "1+1", "n": {"k": 2}}, template="Q: {q} {n[k]}\nA:")

    assert got.rows[0].prompt == "Q: 1+1 2\nA:"


@pytest.mark.parametrize("template", ["{} x", "{q", "{q.a}", "{z}"])
def test_a_template_that_cannot_be_filled_in_says_why(batch, template):
    with pytest.raises(DataError, match=r"`template`|column `z` is missing"):
        batch({"q": "1"}, template=template)


def test_messages_always_use_the_chat_template(batch, chat_tokenizer):
    got = batch({"prompt": TALK[:1]}, by=chat_tokenizer)

    assert got.rows[0].prompt == "<user>hi<eos>\n<assistant>"
    assert texts(got.context, chat_tokenizer) == ["<bos><user>hi<eos>\n<assistant>"]


def test_text_is_a_users_turn_only_where_chat_is_set(batch, chat_tokenizer):
    plain = batch({"prompt": "hi"}, by=chat_tokenizer)
    chat = batch({"prompt": "hi"}, by=chat_tokenizer, chat=True, system="be brief")

    assert plain.rows[0].prompt == "hi"
    assert chat.rows[0].prompt == "<system>be brief<eos>\n<user>hi<eos>\n<assistant>"


def test_worked_examples_stand_before_the_prompt(batch, chat_tokenizer):
    shots = [{"prompt": "1+1=", "completion": "2"}]

    plain = batch({"prompt": "2+2="}, examples=shots)
    chat = batch({"prompt": "2+2="}, by=chat_tokenizer, chat=True, examples=shots)

    assert plain.rows[0].prompt == "1+1=2\n\n2+2="
    assert chat.rows[0].prompt == (
        "<user>1+1=<eos>\n<assistant>2<eos>\n<user>2+2=<eos>\n<assistant>"
    )


def test_a_system_message_for_plain_text_is_an_error(batch):
    with pytest.raises(DataError) as caught:
        batch({"prompt": "hi"}, system="be brief", on_bad_row="skip")

    assert str(caught.value) == snapshot("""\
`system` is set, but these prompts are plain text
help: set `chat = true`, or put it into `template`\
""")


def test_messages_without_a_chat_template_are_an_error(batch):
    with pytest.raises(DataError) as caught:
        batch({"prompt": TALK[:1]}, on_bad_row="skip")

    assert str(caught.value) == snapshot("""\
these prompts are chat messages, and the tokenizer has no chat template
help: use a model with a chat template, or plain text prompts and `template`\
""")


@pytest.mark.parametrize(
    "prompt", [[], [{"role": "user"}], ["hi"], TALK, [dict(TALK[0], content="")], 3]
)
def test_a_prompt_that_is_neither_text_nor_open_chat_is_a_bad_row(batch, chat_tokenizer, prompt):
    with pytest.raises(RowError) as caught:
        batch({"prompt": prompt}, by=chat_tokenizer)

    assert caught.value.where == "a.jsonl:1"


def test_an_example_trains_its_completion_and_eos(batch, tokenizer):
    got = batch({"prompt": "ab", "completion": "cd"}, kind="examples")

    assert isinstance(got, ExampleBatch)
    assert texts(got.context, tokenizer) == ["<bos>ab"]
    assert texts(got.tokens, tokenizer) == trained(got, tokenizer) == ["cd<eos>"]


@pytest.mark.parametrize("template", [CHAT, TAGGED_CHAT])
def test_a_conversation_trains_each_answer_up_to_eos(batch, template):
    tokenizer = make_tokenizer(template=template)

    got = batch({"messages": TALK}, kind="examples", by=tokenizer)

    assert texts(got.context, tokenizer) == ["<bos><user>hi<eos>\n<assistant>"]
    assert texts(got.tokens, tokenizer) == ["yo<eos>\n<user>bye<eos>\n<assistant>so long<eos>"]
    assert trained(got, tokenizer) == ["yo<eos>|so long<eos>"]


@pytest.mark.parametrize("template", [CHAT, TAGGED_CHAT])
@pytest.mark.parametrize("completion", [TALK[3:], TALK])
def test_only_the_completion_is_trained_where_it_is_apart(batch, template, completion):
    tokenizer = make_tokenizer(template=template)
    shots = [{"prompt": "1", "completion": "2"}]

    got = batch(
        {"prompt": TALK[:3], "completion": completion},
        kind="examples",
        by=tokenizer,
        examples=shots,
    )

    assert texts(got.context, tokenizer) == [
        "<bos><user>1<eos>\n<assistant>2<eos>\n"
        "<user>hi<eos>\n<assistant>yo<eos>\n<user>bye<eos>\n<assistant>"
    ]
    assert trained(got, tokenizer) == texts(got.tokens, tokenizer) == ["so long<eos>"]


def test_worked_examples_are_not_trained(batch, chat_tokenizer):
    shots = [{"prompt": "1", "completion": "2"}]

    got = batch({"messages": TALK}, kind="examples", by=chat_tokenizer, examples=shots)

    assert trained(got, chat_tokenizer) == ["yo<eos>|so long<eos>"]


def test_a_template_that_rewrites_earlier_turns_is_an_error_of_the_row(batch):
    template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{{ '!' if loop.last and not add_generation_prompt }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )

    with pytest.raises(RowError) as caught:
        batch({"messages": TALK}, kind="examples", by=make_tokenizer(template=template))

    assert str(caught.value) == snapshot("""\
the chat template writes message 2 differently when more follow
a.jsonl:1
help: mark what is trained by {% generation %} tags in the template\
""")


@pytest.mark.parametrize("as_message", [False, True])
def test_a_pair_has_the_chosen_completion_first(batch, as_message, chat_tokenizer):
    def turn(text):
        return [{"role": "assistant", "content": text}] if as_message else text

    got = batch(
        {"prompt": "ab", "chosen": turn("c"), "rejected": turn("dd")},
        {"prompt": "x", "chosen": turn("y"), "rejected": turn("z")},
        kind="pairs",
        by=chat_tokenizer,
        chat=True,
    )

    assert isinstance(got, PairBatch)
    assert texts(got.context, chat_tokenizer)[0] == "<bos><user>ab<eos>\n<assistant>"
    assert texts(got.tokens, chat_tokenizer) == ["c<eos>", "dd<eos>", "y<eos>", "z<eos>"]
    assert [length.tolist() for length in got.tokens.lengths] == [[2, 2], [2, 3, 2, 2]]
    assert got.mask.values.all()


def test_completions_need_an_eos_token(batch):
    with pytest.raises(DataError) as caught:
        batch({"prompt": "a", "completion": "b"}, kind="examples", by=make_tokenizer(eos=None))

    assert str(caught.value) == snapshot("""\
completions must end with an EOS token, and the tokenizer has none
help: set `eos_token` in the model's tokenizer_config.json\
""")


@pytest.mark.parametrize("kind", ["prompts", "examples", "pairs"])
@pytest.mark.parametrize("writes", ["", "<bos>", "<bos><bos>"])
@pytest.mark.parametrize(("bos", "least"), [("prepended", 1), ("known", 0), ("none", 0)])
def test_there_is_one_bos_or_none(batch, kind, writes, bos, least):
    tokenizer = make_tokenizer(bos=bos, template=writes + CHAT)
    answer = [{"role": "assistant", "content": "yo"}]
    row = {"prompt": TALK[:1], "completion": answer, "chosen": answer, "rejected": answer}

    (context, *_) = batch(row, kind=kind, by=tokenizer).context.rows()

    found = (context == tokenizer.convert_tokens_to_ids("<bos>")).sum()
    expected = 1 if least else bool(writes)
    if bos != "none":  # where there is no BOS, a template that writes "<bos>" writes what it likes
        assert found == expected
    elif not writes:
        assert found == 0


def test_a_row_keeps_the_messages_of_its_prompt(batch, tokenizer):
    tokenizer.chat_template = CHAT

    asked, plain = TALK[:1], batch({"prompt": "ab"})
    got = batch({"prompt": asked}, system="be kind")

    assert got.rows[0].messages == ({"role": "system", "content": "be kind"}, *asked)
    assert plain.rows[0].messages == ()
