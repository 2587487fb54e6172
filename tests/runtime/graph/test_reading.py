"""Models that read what another tokenizer wrote."""

import json

import pytest
import torch
from inline_snapshot import snapshot
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.graph.reading import TextReader, same_tokens
from flowrl.runtime.rows.rows import Row
from tests.train.judges import TURNS, merging_tokenizer

ROW = Row(0, "rows.jsonl:1", "ab")


@pytest.fixture(scope="module")
def own():
    return merging_tokenizer()


def changed(tokenizer, change):
    """Return a tokenizer with its tokenizer.json changed."""
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    change(written)
    made = Tokenizer.from_str(json.dumps(written))
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="</s>")


def swap(written):
    vocabulary = written["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def drop_merge(written):
    written["model"]["merges"].pop()


def plain_token(written):
    written["added_tokens"][0]["special"] = False


def other_cuts(written):
    written["pre_tokenizer"]["use_regex"] = True


@pytest.mark.parametrize("change", [swap, drop_merge, plain_token, other_cuts])
def test_tokenizers_that_differ_in_one_rule_are_others(own, change):
    assert not same_tokens(own, changed(own, change))


def test_what_is_put_around_a_text_makes_no_other_tokenizer(own, tmp_path):
    own.save_pretrained(tmp_path)
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    again.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A")
    again.backend_tokenizer.enable_padding()
    again.chat_template = TURNS

    assert same_tokens(own, again)


def test_tokenizers_whose_rules_are_not_known_are_the_same_only_if_they_are_one():
    one, other = object(), object()

    assert same_tokens(one, one)
    assert not same_tokens(one, other)


def read(own, row, *texts, padding=None):
    """Return the ids that a model reads of a row's completions, written in its own tokens."""
    ids = [own(text, add_special_tokens=False)["input_ids"] for text in texts]
    lengths = torch.tensor([len(texts)]), torch.tensor([len(i) for i in ids])
    tokens = Ragged(torch.tensor([i for of in ids for i in of], dtype=torch.int64), lengths)
    batch = TextReader("judge", own, own, padding)([row], tokens)
    pairs = zip(batch.context.rows(), batch.tokens.rows(), strict=True)
    return [torch.cat(pair).tolist() for pair in pairs]


def test_plain_text_is_tokenized_as_one(own):
    assert read(own, ROW, "c", "") == own(["abc", "ab"])["input_ids"]


def test_special_tokens_of_a_completion_are_no_text(own):
    assert read(own, ROW, "c</s>") == own(["abc"])["input_ids"]


def test_padding_at_the_end_is_not_read(own):
    whole = own("abc")["input_ids"]

    assert read(own, ROW, "c", padding=own.pad_token_id) == [whole[:-1]]
    assert read(own, ROW, "c", padding=whole[1]) == [whole]


def test_a_chat_template_is_told_of_tools_and_puts_its_own_tokens_around():
    own = merging_tokenizer(chat_template="{{ tools[0].name }}" + TURNS)
    row = Row(0, "rows.jsonl:1", "?", {"tools": [{"name": "h3"}]}, [{"role": "a", "content": "b"}])

    (ids,) = read(own, row, "c")

    assert own.decode(ids) == "h3<s>a: b</s><s>assistant: c</s>"


def test_a_chat_template_that_refuses_a_row(own):
    own = merging_tokenizer(chat_template="{{ raise_exception('no system') }}")

    with pytest.raises(EngineError) as error:
        read(own, ROW, "c")

    assert str(error.value) == snapshot("""\
the chat template of `judge` refuses the messages: no system
  rows.jsonl:1
help: fix the row, or the chat_template of the reward model\
""")


def test_a_chat_template_that_fails_on_a_row():
    own = merging_tokenizer(chat_template="{% for tool in tools %}{% endfor %}" + TURNS)

    with pytest.raises(EngineError, match="refuses the messages: 'NoneType' object") as error:
        read(own, ROW, "c")

    assert error.value.where == "  rows.jsonl:1"


def test_a_text_without_a_token(own):
    silent = changed(own, lambda written: written.update(post_processor=None))

    with pytest.raises(EngineError) as error:
        read(silent, Row(0, "rows.jsonl:1", ""), "")

    assert str(error.value) == snapshot("""\
the tokenizer of `judge` gives no token for ''
  rows.jsonl:1
help: take a reward model whose tokenizer knows this text\
""")
