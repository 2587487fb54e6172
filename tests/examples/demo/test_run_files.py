from pathlib import Path

import pytest
from transformers import AutoTokenizer

from examples.demo import make_model, make_task
from flowrl.config.run_file import load_run_file
from flowrl.data.opening import open_data
from flowrl.data.spec import DataSpec
from flowrl.rewards.spec import RewardSpec

DEMO = Path(__file__).parents[3] / "examples" / "demo"
RUN_FILES = ["sft.toml", "grpo.toml", "ppo.toml", "smollm2/grpo.toml"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo")
    make_task.main(path / "task", seed=0)
    make_model.main(path / "model", seed=0)
    return path


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_run_file_has_known_keys_only(name):
    run = load_run_file(DEMO / name)

    run.structure(DataSpec, "data")
    for reward in run.reward.functions:
        run.structure(RewardSpec, f"reward.{reward}")


@pytest.mark.parametrize("name", ["grpo.toml", "ppo.toml"])
def test_training_and_held_out_prompts_share_no_word(name, folder):
    run = load_run_file(DEMO / name)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")

    train, heldout = (
        open_data(run.structure(DataSpec, key), "prompts", tokenizer, seed=0, folder=folder)
        for key in ("data", "eval.data")
    )

    assert not prompts(train) & prompts(heldout)
    assert len(prompts(heldout)) == make_task.SIZES["heldout"]


def prompts(data):
    return {row.prompt.lower() for row in data.cursor().take(data.rows).rows}


def test_smollm2_is_held_out_on_problems_that_it_does_not_train_on(folder):
    run = load_run_file(DEMO / "smollm2" / "grpo.toml")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.content }}{% endfor %}"

    train, heldout = (
        open_data(run.structure(DataSpec, key), "prompts", tokenizer, seed=0, folder=folder)
        for key in ("data", "eval.data")
    )

    assert not prompts(train) & prompts(heldout)
    assert (train.rows, heldout.rows) == (136, 64)
