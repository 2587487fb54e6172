import json
import logging
import shutil

import pytest
import torch
import transformers
from inline_snapshot import snapshot
from safetensors import safe_open

from flowrl.errors import EngineError
from flowrl.runtime.model.heads import head_module
from flowrl.runtime.model.models import ModelSpec, check_model, load_model
from tests.runtime.conftest import VOCAB


@pytest.mark.parametrize("head", ["value", "reward", "token_reward"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_new_head_is_zero_and_said_once_in_our_words(
    model_folder, architecture, head, caplog, capfd
):
    spec = ModelSpec(model_folder(architecture))
    capfd.readouterr()

    with caplog.at_level(logging.INFO, logger="flowrl"):
        model = load_model(spec, head)

    said = f"{spec.path} has no {head} head yet: it starts at zero"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert capfd.readouterr() == ("", "")
    assert not head_module(model).weight.any()


def test_a_saved_head_is_loaded_again(model_folder, tmp_path):
    model = load_model(ModelSpec(model_folder("llama"), "value"))
    torch.nn.init.ones_(model.score.weight)
    model.save_pretrained(tmp_path)

    again = load_model(ModelSpec(str(tmp_path), "value"))

    assert (again.score.weight == 1).all()
    assert again.dropout.p == 0


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path / "none")))

    assert str(error.value).replace(str(tmp_path), "TMP") == snapshot("""\
`TMP/none` is not a folder
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
""")


def test_a_folder_without_weights_is_refused(model_folder, tmp_path):
    transformers.AutoConfig.from_pretrained(model_folder("llama")).save_pretrained(tmp_path)

    with pytest.raises(EngineError, match=f"`{tmp_path}` holds no model: "):
        load_model(ModelSpec(str(tmp_path)))


def test_weights_that_were_not_written_to_their_end_are_refused(model_folder, tmp_path):
    shutil.copytree(model_folder("llama"), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])

    with pytest.raises(EngineError, match=f"`{tmp_path}` holds no model: Error while deserial"):
        load_model(ModelSpec(str(tmp_path)))


def test_a_config_of_a_newer_transformers_is_told_with_the_word_that_is_unknown(
    model_folder, tmp_path
):
    shutil.copytree(model_folder("llama"), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"hidden_act": "newer"}))

    with pytest.raises(EngineError, match=r"holds no model: KeyError\('newer'\)\n"):
        load_model(ModelSpec(str(tmp_path)))


def test_a_critic_is_no_language_model(model_folder, tmp_path):
    load_model(ModelSpec(model_folder("qwen2"), "value")).save_pretrained(tmp_path)

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path), "lm"))

    assert str(error.value).replace(str(tmp_path), "TMP") == snapshot("""\
`TMP` lacks 1 weights of a Qwen2ForCausalLM, first `lm_head.weight`
help: check that the folder holds this kind of model and was written to its end\
""")


def test_a_reward_model_of_two_labels_is_refused(model_folder, tmp_path):
    config = transformers.AutoConfig.from_pretrained(model_folder("llama"))
    config.num_labels = 2
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path), "reward"))

    assert str(error.value).replace(str(tmp_path), "TMP") == snapshot("""\
`score.weight` in `TMP` is of shape [2, 16]; a LlamaForSequenceClassification here needs [1, 16]
help: a head gives one number: train one with `head` set, or take another model\
""")


def test_a_reward_model_that_does_not_read_the_last_token_is_refused(tmp_path):
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=8, num_labels=1)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(str(tmp_path), "reward"))

    assert str(error.value).replace(str(tmp_path), "TMP") == snapshot("""\
`TMP` is a BertForSequenceClassification, which attends both ways: its output at a token would depend on later tokens
help: take a classifier with one label on a causal language model, or call this one in a reward function\
""")


@pytest.mark.parametrize("head", ["value", "reward", "token_reward"])
@pytest.mark.parametrize("of", ["tokens", "sequences"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2", "gpt_neox", "bloom"])
def test_a_head_of_one_number_serves_every_role_whatever_it_was_saved_as(
    classifier_folder, architecture, of, head, caplog
):
    folder = classifier_folder(architecture, of)
    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        name = "score" if "score.weight" in file.keys() else "classifier"  # noqa: SIM118
        saved = file.get_tensor(f"{name}.weight")

    with caplog.at_level(logging.INFO, logger="flowrl"):
        model = load_model(ModelSpec(folder), head)

    assert torch.equal(head_module(model).weight, saved)
    assert caplog.records == []


def test_scores_are_capped_where_the_model_caps_them(model_folder):
    model = load_model(ModelSpec(model_folder("gemma2")))
    said = torch.tensor([[5, 6, 7, 8]])
    before = model(said).logits

    for layer in model.model.layers:
        layer.self_attn.attn_logit_softcapping = 0.1

    assert (model(said).logits - before).abs().max() > 1e-3


def test_a_type_without_a_class_for_the_head_gets_the_other_classifiers(model_folder, tmp_path):
    model = load_model(ModelSpec(model_folder("opt")), "value")
    torch.nn.init.ones_(model.score.weight)
    model.save_pretrained(tmp_path)

    again = load_model(ModelSpec(str(tmp_path)), "value")

    assert (again.score.weight == 1).all()


def test_a_type_without_any_classifier_is_refused(model_folder):
    folder = model_folder("granite")

    with pytest.raises(EngineError) as error:
        load_model(ModelSpec(folder), "value")

    assert str(error.value).replace(folder, "FOLDER") == snapshot("""\
`FOLDER` is of type granite, of which transformers has no classifier: it can have no value head
help: take a model of another type; a policy is its own critic with `head = "lm+value"`\
""")


@pytest.mark.parametrize("head", ["lm", "lm+value", "value", "reward"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gpt2", "gpt_neox", "bloom"])
def test_what_loads_is_found_sound_without_its_numbers(model_folder, architecture, head):
    spec = ModelSpec(model_folder(architecture))

    load_model(spec, head)

    assert check_model(spec, head).get_text_config().vocab_size == VOCAB


def test_a_head_that_nothing_trains_is_missed_without_the_numbers(model_folder, tmp_path):
    bare = ModelSpec(model_folder("llama"), "reward", new_head=False)
    load_model(ModelSpec(model_folder("llama"), "reward")).save_pretrained(tmp_path)

    check_model(ModelSpec(str(tmp_path), "reward", new_head=False))
    with pytest.raises(EngineError, match="has no reward head, and nothing here trains one"):
        check_model(bare)
