"""What TRL's learning run reads and writes: the rows of flowrl's run, and seconds of steps alone."""

import json
from importlib import import_module
from runpy import run_path
from types import SimpleNamespace

import pytest

from flowrl.config.run_file import load_run_file
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.runtime.model.models import ModelSpec
from tests.conformance.conftest import MISSING
from tests.train.conftest import Folder, make_model, make_tokenizer, model, sent  # noqa: F401

pytestmark = MISSING
EVALUATED = """
[eval]
every_steps = 2

[eval.data]
source = "heldout.jsonl"
"""
CHAT = (
    "{% for turn in messages %}{{ turn['content'] }}.{% endfor %}"
    "{% if add_generation_prompt %}+{% endif %}"
)


def reward(folder):
    """Return the reward of the folder's runs."""
    return run_path(str(folder.path / "reward.py"))["vowels"]


@pytest.fixture
def trl_rows():
    """Return the module, which imports vLLM."""
    return import_module("benchmarks.chain_sum.trl_rows")


@pytest.fixture
def folder(tmp_path, model):  # noqa: F811
    """Return a run's folder that holds rows out."""
    made = Folder(tmp_path, model)
    made.write_rows("train.jsonl", [{"prompt": f"{c}+{c}=", "answer": c} for c in "abcdefghijkl"])
    made.write_rows("heldout.jsonl", [{"prompt": f"{c}.{c}=", "answer": c} for c in "xyz"])
    made.write("grpo", EVALUATED)
    return made


def test_it_trains_on_the_rows_of_the_run_in_their_order(trl_rows, folder, sent):  # noqa: F811
    tokenizer = make_tokenizer()
    run = load_run_file(str(folder.path / "run.toml"))
    drawn, held = trl_rows.rows_of(run, tokenizer)

    folder.rerun("train.steps=3", "eval.every_steps=0", "eval.greedy=false")

    asked = [tokenizer.decode(prompt) for prompt in sent]
    assert asked == [row["prompt"] for row in [*held, *drawn, *held]]
    assert [set(row) for row in drawn] == [{"prompt", "answer"}] * 12


def test_it_reads_held_out_rows_as_the_run_does(trl_rows, tmp_path, make_model):  # noqa: F811
    tokenizer = make_tokenizer(chat_template=CHAT)
    chats = [[{"role": "user", "content": f"{c}.{c}="}] for c in "abcdefghijklmnopqrstuvwxyz"]
    held = [{"prompt": chat, "answer": chat[0]["content"][0]} for chat in chats]
    folder = Folder(tmp_path, make_model(tokenizer, hidden_size=64))
    folder.write_rows("heldout.jsonl", held)
    folder.write_rows("train.jsonl", held)
    folder.write("grpo", EVALUATED)
    (start, *_) = folder.rerun("train.steps=1", "eval.greedy=true")
    run = load_run_file(str(folder.path / "run.toml"))
    generator = VLLMGenerator(ModelSpec(str(folder.model)), tokenizer, kv_cache_gib=0.1)
    engine = SimpleNamespace(llm=generator.llm, sync_weights=lambda: None)
    rows = trl_rows.Rows(run, tokenizer, held, reward(folder), tmp_path / "trl.jsonl")
    rows.trainer = SimpleNamespace(vllm_generation=engine)

    found = rows._evaluated()

    assert found["greedy"] == pytest.approx(start["eval/greedy"], rel=1e-5)
    assert found["heldout"] > 0


def test_seconds_are_those_of_steps_alone(trl_rows, folder, monkeypatch):
    now = iter([10.0, 12.0, 13.0, 16.0, 96.0, 100.0, 200.0])  # begin, end, begin, end, ...
    monkeypatch.setattr(trl_rows, "moment", lambda: next(now))
    monkeypatch.setattr(trl_rows.Rows, "_evaluated", lambda self: {"heldout": 0.5, "greedy": 0.0})
    run = load_run_file(str(folder.path / "run.toml"))
    rows = trl_rows.Rows(run, None, [], None, folder.path / "trl.jsonl")

    rows.on_train_begin()
    for step in (1, 2, 3):
        rows.on_step_end()
        rows.on_log(None, SimpleNamespace(global_step=step), None, logs={"reward": 1.0})

    written = [json.loads(line) for line in rows.out.read_text().splitlines()]
    assert [row["seconds"] for row in written] == [0, 2, 5, 9]
    assert [row["step"] for row in written if "heldout" in row] == [0, 2, 3]
