"""Whole runs in a folder of their own: a tiny model, a few rows, a reward, a run file."""

import json
import shutil
import string

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from flowrl.errors import FlowrlError
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.train.run import run_file
from tests.rewards.conftest import serve  # noqa: F401

SPECIAL = ["<pad>", "<bos>", "<eos>"]
CHARACTERS = [*string.ascii_lowercase, *string.digits, *" .+=:"]
VOCABULARY = len(SPECIAL) + len(CHARACTERS)
REWARD = """
def vowels(completions, answer):
    return [sum(c in "aeiou" for c in text) / 4 + (text[:1] == a) for text, a in zip(completions, answer)]
"""


def make_tokenizer(*, bos=False, **given):
    """Return a tokenizer of one token a character; `bos` puts one before each text."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *CHARACTERS])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", **given
    )


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """Return a function that makes the folder of a language model with two layers."""

    def make(tokenizer, hidden_size=16, **given):
        torch.manual_seed(0)
        sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": VOCABULARY} | given
        sizes["hidden_size"] = hidden_size
        ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = LlamaConfig(intermediate_size=24, **sizes, **ids)
        made = LlamaForCausalLM(config)
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter, std=1.2 / hidden_size**0.5)
        folder = tmp_path_factory.mktemp("model")
        made.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def model(make_model):
    return make_model(make_tokenizer())


@pytest.fixture
def sent(monkeypatch):
    """Return the prompts, token ids, that the generating engine gets; it grows."""
    prompts, generate = [], HFGenerator.generate

    def spy(self, requests, sampling):
        prompts.extend(list(request.prompt) for request in requests)
        return generate(self, requests, sampling)

    monkeypatch.setattr(HFGenerator, "generate", spy)
    return prompts


RUN = """
[program]
file = "{program}"
{hyperparameters}

[models.policy]
path = "{model}"
{models}

[engines.policy.generate]
max_tokens = 6

[data]
source = "train.jsonl"

{reward}

[optimizer]
learning_rate = 0.01

[train]
steps = 3
prompts_per_step = 4
folder = "out"

[log]
console = "plain"
tensorboard = false
"""
SCORED = '[reward]\nreward = "reward.py:vowels"'
REFERENCE = '[models.reference]\npath = "{model}"'
CRITIC = '[models.critic]\npath = "{model}"\nhead = "value"'
PROGRAMS = {
    "grpo": {"hyperparameters": "samples = 4", "models": REFERENCE, "reward": SCORED},
    "ppo": {
        "hyperparameters": "minibatch = 4",
        "models": f"{REFERENCE}\n{CRITIC}",
        "reward": SCORED,
    },
    "sft": {},
    "dpo": {"models": REFERENCE},
}
ROWS = [
    {
        "prompt": f"{letter}{number}:",
        "answer": letter,
        "completion": f"{letter}a",
        "chosen": f"{letter}a",
        "rejected": f"{letter}z",
    }
    for number, letter in enumerate("abcdefgh")
]


class Folder:
    """A run's folder: what stands in it, the run itself, and what the run wrote."""

    def __init__(self, path, model):
        self.path, self.model = path, model
        self.write_rows("train.jsonl", ROWS)
        (path / "reward.py").write_text(REWARD)

    def write_rows(self, name, rows):
        (self.path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(self, program="grpo", added="", **parts):
        """Write the run file of a program, with lines added at its end."""
        blank = {"hyperparameters": "", "models": "", "reward": ""}
        filled = {k: v.format(model=self.model) for k, v in PROGRAMS.get(program, {}).items()}
        text = RUN.format(program=program, model=self.model, **(blank | filled | parts))
        (self.path / "run.toml").write_text(text + added)
        return str(self.path / "run.toml")

    def run(self, program="grpo", *sets, added="", **parts):
        """Run a program; return the records of metrics.jsonl."""
        self.write(program, added, **parts)
        return self.rerun(*sets)

    def rerun(self, *sets):
        """Run the run file that stands there."""
        return records(run_file(str(self.path / "run.toml"), sets).parent)

    def clean(self):
        """Remove what the last run wrote."""
        shutil.rmtree(self.path / "out")

    def records(self):
        return records(self.path / "out")

    @property
    def sampled(self):
        """The records of samples.jsonl."""
        lines = (self.path / "out" / "samples.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path, model):
    return Folder(tmp_path, model)


@pytest.fixture
def refused(folder, monkeypatch):
    """Return the error that a run ends with; no model can be loaded meanwhile."""

    def error(program, *sets, kind=FlowrlError, **parts):
        with monkeypatch.context() as patch:
            patch.setattr("flowrl.stages.Lowered.compile", None)
            with pytest.raises(kind) as raised:
                folder.run(program, *sets, **parts)
        return str(raised.value).replace(str(folder.path), "FOLDER")

    return error
