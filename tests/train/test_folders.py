"""Folders that hold no model, or another one than a run reads, are told by check and by run."""

import json
import shutil

import pytest
import torch
from inline_snapshot import snapshot
from safetensors.torch import load_file, save_file

from flowrl.errors import FlowrlError
from flowrl.report.check import checked
from flowrl.train.run import run_file
from tests.train.conftest import SCORED

WEIGHTS = "model.safetensors"


@pytest.fixture
def run_of(folder, model):
    """Return a function that writes a run file whose model is a copy, changed."""

    def write(change):
        kept = folder.path / "kept"
        shutil.copytree(model, kept)
        change(kept)
        folder.model = "kept"
        return folder.write("sft")

    return write


def refused(folder, act):
    """Return the text of the error that ends `act`, without the way to the run's folder."""
    with pytest.raises(FlowrlError) as caught:
        act()
    return str(caught.value).replace(f"{folder.path}/", "")


def remove(*names):
    """Return a function that removes files of a folder."""
    return lambda kept: [(kept / name).unlink() for name in names]


def write(name, text):
    """Return a function that writes a file of a folder."""
    return lambda kept: (kept / name).write_text(text)


def cut(kept):
    (kept / WEIGHTS).write_bytes((kept / WEIGHTS).read_bytes()[:-9])


def shard(kept):
    remove(WEIGHTS)(kept)
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    write(f"{WEIGHTS}.index.json", json.dumps(index))(kept)


def drop_tensor(kept):
    tensors = load_file(kept / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, kept / WEIGHTS, metadata={"format": "pt"})


def configure(**keys):
    """Return a function that sets keys in a folder's config."""

    def change(kept):
        config = json.loads((kept / "config.json").read_text())
        write("config.json", json.dumps(config | keys))(kept)

    return change


def nest(kept):
    inner = kept / "policy"
    inner.mkdir()
    for file in [each for each in kept.iterdir() if each != inner]:
        file.rename(inner / file.name)


def replace_by_file(kept):
    shutil.rmtree(kept)
    kept.write_text("")


FAULTS = {
    "no config": (
        remove("config.json"),
        snapshot("""\
`models.policy.path`: `kept` has no config.json: it holds generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json
  run.toml:7
    7 | path = "kept"
        ^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
"""),
    ),
    "a folder around it": (
        nest,
        snapshot("""\
`models.policy.path`: `kept` has no config.json: it holds policy
  run.toml:7
    7 | path = "kept"
        ^^^^
help: a model is in `kept/policy`\
"""),
    ),
    "a file": (
        replace_by_file,
        snapshot("""\
`models.policy.path`: expected a folder; `kept` is a file
  run.toml:7
    7 | path = "kept"
        ^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
"""),
    ),
    "broken JSON": (
        write("config.json", '{"model_type": "llama",'),
        snapshot("""\
`models.policy.path`: `kept/config.json` cannot be read: Expecting property name enclosed in double quotes: line 1 column 24 (char 23)
  run.toml:7
    7 | path = "kept"
        ^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
"""),
    ),
    "no type": (
        write("config.json", "[1]"),
        snapshot("""\
`models.policy.path`: `kept/config.json` names no `model_type`: got [1]
  run.toml:7
    7 | path = "kept"
        ^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
"""),
    ),
    "an encoder and decoder": (
        write("config.json", '{"model_type": "t5"}'),
        snapshot("""\
`models.policy.path`: `kept` is of type t5, of which transformers has no causal language model
  run.toml:7
    7 | path = "kept"
        ^^^^
help: take a model that predicts the next token, such as one of type llama\
"""),
    ),
    "another size": (
        configure(hidden_size=32),
        snapshot("""\
`models.policy.path`: `lm_head.weight` in `kept` is of shape [44, 16]; a LlamaForCausalLM here needs [44, 32]
  run.toml:7
    7 | path = "kept"
        ^^^^
help: its config.json and its weights are of different models: copy the folder again\
"""),
    ),
    "no weights": (
        remove(WEIGHTS),
        snapshot("""\
`models.policy.path`: `kept` has no weights: expected model.safetensors or pytorch_model.bin, whole or with an index; it holds config.json, generation_config.json, tokenizer.json, tokenizer_config.json
  run.toml:7
    7 | path = "kept"
        ^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
"""),
    ),
    "weights cut off": (
        cut,
        snapshot("""\
`models.policy.path`: `kept/model.safetensors` holds no tensors: SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered
  run.toml:7
    7 | path = "kept"
        ^^^^
help: save the model again, or copy the folder again: it was not written to its end\
"""),
    ),
    "a shard too few": (
        shard,
        snapshot("""\
`models.policy.path`: `kept` lacks 2 of the 2 files that model.safetensors.index.json names, first `model-1-of-2.safetensors`
  run.toml:7
    7 | path = "kept"
        ^^^^
help: save the model again, or copy the folder again: it was not written to its end\
"""),
    ),
    "a tensor too few": (
        drop_tensor,
        snapshot("""\
`models.policy.path`: `kept` lacks 1 weights of a LlamaForCausalLM, first `model.layers.1.mlp.up_proj.weight`
  run.toml:7
    7 | path = "kept"
        ^^^^
help: check that the folder holds this kind of model and was written to its end\
"""),
    ),
    "no tokenizer": (
        remove("tokenizer.json", "tokenizer_config.json"),
        snapshot("""\
`models.policy.path`: the folder has no tokenizer
  run.toml:7
    7 | path = "kept"
        ^^^^
kept
help: save the tokenizer into the model's folder; looked for tokenizer.json, tokenizer.model, tokenizer_config.json, vocab.json, vocab.txt\
"""),
    ),
    "a broken tokenizer": (
        write("tokenizer.json", "{"),
        snapshot("""\
`models.policy.path`: no tokenizer can be loaded: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
  run.toml:7
    7 | path = "kept"
        ^^^^
kept
help: save it again: `tokenizer.save_pretrained(folder)`\
"""),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_without_a_model_is_told_with_its_line_before_a_run_starts(fault, folder, run_of):
    change, said = FAULTS[fault]
    file = run_of(change)

    assert refused(folder, lambda: checked(file, ())) == said
    assert refused(folder, lambda: run_file(file)) == said
    assert not (folder.path / "out").exists()


def small_vocabulary(kept):
    configure(vocab_size=30)(kept)
    tensors = {n: x[:30] if len(x) == 44 else x for n, x in load_file(kept / WEIGHTS).items()}
    save_file(tensors, kept / WEIGHTS, metadata={"format": "pt"})


def large_vocabulary(kept):
    configure(vocab_size=440)(kept)
    tensors = load_file(kept / WEIGHTS)
    tensors = {n: x.repeat(10, 1) if len(x) == 44 else x for n, x in tensors.items()}
    save_file(tensors, kept / WEIGHTS, metadata={"format": "pt"})


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(folder, run_of):
    file = run_of(small_vocabulary)

    assert refused(folder, lambda: checked(file, ())) == snapshot("""\
`models.policy.path`: the tokenizer has ids up to 43, and the model 30 tokens: it can't read `1`, 30
  run.toml:7
    7 | path = "kept"
        ^^^^
help: save beside a model the tokenizer that it was trained with, or resize the model's embedding: `resize_token_embeddings`\
""")


def test_a_tokenizer_of_far_fewer_tokens_than_the_model_is_told(run_of):
    file = run_of(large_vocabulary)

    assert checked(file, ()).splitlines()[-1] == snapshot(
        "`models.policy.path`: the model has 440 tokens, its tokenizer 44: samples may have tokens that are no text."
    )


def test_weights_that_are_pickled_are_read_too(run_of):
    def pickle(kept):
        torch.save(load_file(kept / WEIGHTS), kept / "pytorch_model.bin")
        remove(WEIGHTS)(kept)

    assert "are sound" in checked(run_of(pickle), ())


def test_a_critic_without_a_head_is_sound(folder):
    assert "are sound" in checked(folder.write("ppo"), ())


def test_an_adapter_of_layers_that_the_model_has_not_is_told_with_its_key(folder, model):
    file = folder.write("sft")

    said = refused(folder, lambda: checked(file, ('models.policy.lora.targets=["nope"]',)))

    assert said == snapshot("""\
`models.policy.lora.targets`: a LlamaForCausalLM has no linear layers `nope` for adapters
  --set models.policy.lora.targets=["nope"]
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
""")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            ("engines.policy.generate.max_tokens=2048",),
            snapshot(
                "`engines.policy.generate.max_tokens` needs at least 2049 positions for prompt and completion; the model of `policy` has 2048"
            ),
        ),
        (
            (
                'engines.policy.generate.engine="vllm"',
                "engines.policy.generate.vllm.max_model_len=4096",
            ),
            snapshot(
                "`engines.policy.generate.vllm.max_model_len` needs at least 4096 positions for prompt and completion; the model of `policy` has 2048"
            ),
        ),
        (
            ('eval={max_tokens=5000, reward="reward"}',),
            snapshot(
                "`eval.max_tokens` needs at least 5001 positions for prompt and completion; the model of `policy` has 2048"
            ),
        ),
    ],
)
def test_completions_that_a_model_has_no_positions_for_are_told(sets, said, folder):
    file = folder.write("grpo")

    assert refused(folder, lambda: checked(file, sets)).partition("\n")[0] == said


def test_an_engine_that_only_evaluations_use_needs_the_positions_too(folder):
    file = folder.write("sft", "[eval]\n", reward=SCORED)

    said = refused(folder, lambda: checked(file, ("engines.policy.generate.max_tokens=9999",)))

    assert said.startswith("`engines.policy.generate.max_tokens` needs at least 10000 positions")


def test_a_model_that_only_evaluations_ask_for_rewards_is_checked_too(folder):
    (folder.path / "judge").mkdir()
    file = folder.write("sft", "[eval]\n", reward='[reward.quality]\nmodel = "judge"')

    assert refused(folder, lambda: checked(file, ())) == snapshot("""\
`reward.quality.model`: `judge` has no config.json: it is empty
  run.toml:17
   17 | model = "judge"
        ^^^^^
help: give a folder with config.json and safetensors, as `save_pretrained` writes it\
""")
