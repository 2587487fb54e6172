import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.demo import make_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    make_model.main(path, seed=0)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_the_vocabulary_has_101_tokens(tokenizer):
    assert len(tokenizer) == 101


@given(text=st.text(make_model.CHARACTERS).filter(lambda text: "<" not in text))
def test_text_survives_the_tokenizer_after_loading(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False).input_ids

    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id not in ids


def test_a_prompt_is_bos_the_sentence_as_one_token_and_characters(tokenizer):
    ids = tokenizer(f"{make_model.SENTENCE}sun=").input_ids

    assert tokenizer.convert_ids_to_tokens(ids) == ["<bos>", make_model.SENTENCE, *"sun="]


def test_the_seed_decides_the_weights(folder, tmp_path):
    make_model.main(tmp_path / "same", seed=0)
    make_model.main(tmp_path / "other", seed=1)

    first, same, other = (
        AutoModelForCausalLM.from_pretrained(path).get_input_embeddings().weight
        for path in (folder, tmp_path / "same", tmp_path / "other")
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
