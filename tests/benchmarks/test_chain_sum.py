"""The benchmarks on a small real model: their run files, rewards, problems and curves."""

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from benchmarks.chain_sum import curves
from benchmarks.chain_sum.reward import exact
from benchmarks.gsm import make
from benchmarks.gsm.reward import solved
from flowrl.config.run_file import load_run_file
from flowrl.train.prepare import lower

FOLDER = Path(__file__).parents[2] / "benchmarks"
RUN_FILES = [f for task in ("chain_sum", "gsm") for f in sorted((FOLDER / task).glob("*.toml"))]


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_run_file_is_of_its_program_samples_with_vllm_and_holds_rows_out(path):
    run = load_run_file(path)

    lowered = lower(run)

    assert lowered.models["policy"].generator == "vllm"
    assert run.train.steps >= 100
    assert "heldout" in run.eval.data["source"] != run.written["data"]["source"]


def test_an_answer_must_stand_alone():
    assert exact(["12", " 12\n", "12.", "= 12", ""], ["12"] * 5) == [1, 1, 0, 0, 0]


def test_a_solution_must_end_with_its_number():
    texts = [
        "3+4=7\n#### 7",
        "#### 7.0",
        "#### 1,007",
        "7",
        "#### 7 apples",
        "#### -7",
        "#### 7 #### 8",
    ]
    answers = ["7", "7", "1007", "7", "7", "-7", "7"]

    assert solved(texts, answers) == [1, 1, 1, 0, 0, 1, 0]


@pytest.fixture
def folders(tmp_path):
    """Return the folders of a run by flowrl, whose second step's gap is greater, and one by TRL."""

    def write(folder, file, records):
        (tmp_path / folder).mkdir(exist_ok=True)
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / folder / file).write_text(lines)

    held = [{"step": n, "eval/reward": n / 4, "eval/greedy": n / 2} for n in (0, 2)]
    gaps = [{"policy/logprob_gap_mean": n / 100, "policy/logprob_gap_max": n} for n in (1, 2)]
    steps = [{"step": n, "seconds": 1.5 * n, **gap} for n, gap in zip((1, 2), gaps, strict=True)]
    write("ours", "metrics.jsonl", [held[0], *steps, held[1]])
    about = {"op": "", "kind": "step", "role": "", "pool": "", "times": 1, "bytes": 0}
    ops = [{"step": n, **about, "seconds": 1.5, "memory": 2 * 10**9} for n in (1, 2)]
    write("ours", "ops.jsonl", ops)
    plan = {"name": "grpo", "inputs": [], "nodes": [], "outputs": []}
    (tmp_path / "ours" / "plan.json").write_text(json.dumps(plan))
    theirs = [{"step": n, "seconds": 2.0 * n, "reward": 0.5, "memory": 3 * 10**9} for n in (1, 2)]
    start = {"step": 0, "seconds": 0.0, "heldout": 0.0, "greedy": 0.0}
    write("theirs", "trl.jsonl", [start, theirs[0], theirs[1] | {"heldout": 0.25, "greedy": 0.5}])
    return tmp_path


def test_curves_stand_side_by_side(folders, capsys, monkeypatch):
    monkeypatch.setattr(curves, "measured_text", lambda folder: f"the ops of {folder.name}")
    named = [f"{name}={folders / name}" for name in ("ours", "theirs")]

    curves.main(named, folders / "out")

    text = (folders / "out" / "curves.md").read_text()
    assert capsys.readouterr().out == text + "\n"
    assert text == snapshot("""\
## Held-out reward by step, sampled (greedy)

| step | ours | theirs |
| --- | --- | --- |
| 0 | 0.000 (0.000) | 0.000 (0.000) |
| 2 | 0.500 (1.000) | 0.250 (0.500) |

## Held-out reward by seconds of training, sampled (step)

| seconds | ours | theirs |
| --- | --- | --- |
| 0 | 0.000 (0) | 0.000 (0) |
| 1 | 0.000 (0) | 0.000 (0) |
| 1 | 0.000 (0) | 0.000 (0) |
| 2 | 0.000 (0) | 0.000 (0) |
| 2 | 0.000 (0) | 0.000 (0) |
| 3 | 0.000 (0) | 0.000 (0) |
| 3 | 0.000 (0) | 0.000 (0) |
| 4 | 0.000 (0) | 0.000 (0) |
| 4 | 0.500 (2) | 0.250 (2) |

## Runs

| run | steps | seconds | median of a step | GB at most | mean gap at most | gap at most |
| --- | --- | --- | --- | --- | --- | --- |
| ours | 2 | 4 | 2.25 | 2.0 | 0.020 | 2.000 |
| theirs | 2 | 4 | 2.00 | 3.0 |  |  |

## ours: ops beside the plan

```
the ops of ours
```
""")


def test_the_numbers_of_curves_are_written(folders):
    curve = curves.Curve.read("ours", folders / "ours")

    assert curve.steps == (1.5, 3.0)
    assert [(each.step, each.seconds) for each in curve.readings] == [(0, 0.0), (2, 4.5)]
    assert curve.checks == {"logprob_gap_mean": 0.02, "logprob_gap_max": 2}
    assert curve.by(4.4).step == 0


def test_each_word_problem_is_in_one_file_and_its_solution_ends_with_its_number(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(make, "SIZES", {"heldout": 8, "train": 16, "demonstrations": 16})
    monkeypatch.setattr(make, "DRAWN", 200)

    make.main(tmp_path)

    rows = {
        name: [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in make.SIZES
    }
    questions = [row["prompt"][0]["content"] for of in rows.values() for row in of]
    assert len(set(questions)) == len(questions) == 40
    texts = [row["completion"] for row in rows["demonstrations"]]
    assert solved(texts, [text.rpartition("#### ")[2] for text in texts]) == [1] * 16
    assert max(map(len, texts)) <= make.LONGEST
    assert all(float(row["answer"]) >= 0 for row in rows["train"])
