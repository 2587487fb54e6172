import json

import pytest
from inline_snapshot import snapshot

from flowrl.data.tokenizer import PROBE, check_ids, load_tokenizer
from flowrl.errors import DataError
from tests.data.conftest import make_tokenizer


def test_a_tokenizer_without_a_pad_token_pads_with_eos(tmp_path):
    made = make_tokenizer()
    made.pad_token = None
    made.save_pretrained(tmp_path)

    assert load_tokenizer(tmp_path).pad_token == "<eos>"


def test_the_models_type_does_not_change_the_ids(tmp_path):
    made = make_tokenizer()
    made.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("tokenizer_class", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')

    assert load_tokenizer(tmp_path)(PROBE)["input_ids"] == made(PROBE)["input_ids"]


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path):
    with pytest.raises(DataError) as caught:
        load_tokenizer(tmp_path)

    assert str(caught.value).replace(str(tmp_path), "model") == snapshot("""\
the folder has no tokenizer
model
help: save the tokenizer into the model's folder; looked for tokenizer.json, tokenizer.model, tokenizer_config.json, vocab.json, vocab.txt\
""")


def test_all_lines_of_why_a_tokenizer_cannot_be_loaded_are_told_as_one(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer_config.json").write_text("{}")

    with pytest.raises(DataError) as caught:
        load_tokenizer(tmp_path)

    problem = caught.value.problem
    assert problem.startswith("no tokenizer can be loaded: ValueError: Couldn't instantiate")
    assert "sentencepiece" in problem
    assert "\n" not in problem


def test_what_can_be_no_model_is_refused_at_once():
    for name in ("runs/my--model", "runs/mine.."):
        with pytest.raises(DataError, match=r"there is no such model folder"):
            load_tokenizer(name)
    with pytest.raises(DataError) as caught:
        load_tokenizer("nosuch")

    assert str(caught.value) == snapshot("""\
there is no such model folder
nosuch
help: give a folder, or a name on the hub: `org/name`\
""")


def test_without_the_hub_an_unknown_name_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(DataError) as caught:
        load_tokenizer("flowrl/nosuch")

    assert str(caught.value) == snapshot("""\
there is no such folder, and no such model on the hub: it is not in the cache, and HF_HUB_OFFLINE is set
flowrl/nosuch\
""")


def test_ids_beyond_a_models_tokens_are_refused_where_runs_write_them():
    made = make_tokenizer()
    rows = len(made)

    made.add_tokens(["<image>"])  # no run writes it
    check_ids(made, rows)

    made.chat_template = "{{ messages }}<image>"
    with pytest.raises(DataError) as caught:
        check_ids(made, rows)
    assert str(caught.value).partition("\n")[0] == (
        f"the tokenizer has ids up to {rows}, and the model {rows} tokens: it can't read "
        f"`<image>`, {rows}"
    )
    with pytest.raises(DataError):
        check_ids(make_tokenizer(), rows - 1)
