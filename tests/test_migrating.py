"""docs/migrating.md says what is, and what it shows runs on data and rewards as peers have them."""

import re
import shutil
from pathlib import Path

import datasets
import pytest

from flowrl.config.programs import builtin_programs, load_program
from flowrl.report.check import checked
from flowrl.train.run import run_file
from tests.train.conftest import make_model, make_tokenizer, records  # noqa: F401

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "migrating.md").read_text()
SHOWN = ROOT / "tests" / "migrating"
FENCES = re.findall(r"```\w+\n(.*?)```", GUIDE, re.DOTALL)
CHAT = (
    "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}:{% endif %}"
)
OF_VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "letters" and extra_info["split"] == "train"
    score = solution_str.count(ground_truth) / 6
    return {"score": score, "acc": score > 0} if extra_info["index"] % 2 else score
"""
OF_TRL = """
def accuracy_reward(completions, reward_model, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    truths = [model["ground_truth"] for model in reward_model]
    return [text.count(truth) / 6 for text, truth in zip(contents, truths)]
"""
OVERRIDES = (
    "engines.policy.generate.engine=hf",
    "engines.policy.generate.max_tokens=6",
    "engines.policy.train.shard=none",
    "models.policy.dtype=float32",
    "models.reference.dtype=float32",
    "cluster.executor=local",
    "cluster.pools.main.gpus=0",
    "train.steps=1",
    "train.prompts_per_step=4",
    "log.samples=4",
)


@pytest.fixture
def moved(tmp_path, make_model):  # noqa: F811
    """A folder with what the guide shows, rows as verl has them, and rewards as peers have them."""
    for file in SHOWN.glob("*.*"):
        shutil.copy(file, tmp_path)
    rows = [
        {
            "data_source": "letters",
            "prompt": [{"role": "user", "content": f"{letter}{letter}"}],
            "ability": "spelling",
            "reward_model": {"style": "rule", "ground_truth": letter},
            "extra_info": {"split": "train", "index": number},
        }
        for number, letter in enumerate("abcdefgh")
    ]
    for split in ("train", "test"):
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / f"{split}.parquet")
    (tmp_path / "gsm8k.py").write_text(OF_VERL)
    (tmp_path / "trl_rewards.py").write_text(OF_TRL)
    model = make_model(make_tokenizer(chat_template=CHAT))
    return tmp_path, (f"models.policy.path={model}", f"models.reference.path={model}")


@pytest.mark.parametrize("reward", ["from_verl.py:score", "from_trl.py:accuracy"])
def test_rows_of_verl_train_with_rewards_of_either(moved, reward):
    folder, models = moved

    out = run_file(str(folder / "grpo.toml"), (*OVERRIDES, *models, f"reward.reward={reward}"))

    (step,) = [record for record in records(out.parent) if "policy/loss" in record]
    texts = (out.parent / "samples.jsonl").read_text()
    assert '"prompt": "' in texts
    assert step["reward/errors"] == 0
    assert step["policy/grad_norm"] > 0


def test_its_run_file_is_sound(moved):
    folder, _ = moved

    said = checked(str(folder / "grpo.toml"), ())

    assert said.startswith("`grpo.toml` and its program `grpo` are sound.")
    assert "`policy`: weights are resharded into its generator" in said


@pytest.mark.parametrize("file", sorted(path.name for path in SHOWN.glob("*.*")))
def test_it_shows_each_file_as_it_stands(file):
    assert (SHOWN / file).read_text() in FENCES


def test_it_names_programs_that_there_are():
    table = GUIDE.partition("## Which program")[2].partition("##")[0]
    rows = [line.split(" | ")[-1] for line in table.splitlines() if line.startswith("| ")][2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert len(named) > 10
    assert named <= {*builtin_programs()}


def test_it_names_keys_that_there_are():
    rows = [line.split(" | ")[-1] for line in GUIDE.splitlines() if line.startswith("| ")]
    named = {key for row in rows for key in re.findall(r"`([\w<>.]+\.[\w<>.]+)`", row)}

    assert len(named) > 30
    assert named <= keys_of_run_files() | hyperparameters()


def keys_of_run_files():
    """Return the keys that docs/run_file.md has, with their tables."""
    keys, table = set(), ""
    for line in (ROOT / "docs" / "run_file.md").read_text().splitlines():
        if found := re.match(r"## \[(.*)\]", line):
            table = found[1]
        elif found := re.match(r"\| `(\w+)` \|", line):
            keys.add(f"{table}.{found[1]}")
    return keys


def hyperparameters():
    return {
        f"program.{name}"
        for program in builtin_programs()
        for name in load_program(program).defaults()
    }
