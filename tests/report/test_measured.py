"""What a run took, beside what was predicted: a table of its ops."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.cli import main
from flowrl.errors import DataError
from flowrl.ir.plan import Plan
from flowrl.report.measured import measured_text
from tests.train.conftest import folder, make_model, model  # noqa: F401
from tests.train.test_op_log import MACHINES

FORECAST = {
    "seconds": 4.0,
    "tasks": [
        {"op": "%0", "kind": "generate", "seat": "policy.generate", "seconds": 1.0}
        | {"sequences": 8.0, "times": 2.0},
        {"op": "%4", "kind": "logprobs", "seat": "policy.score", "seconds": 0.0}
        | {"sequences": 16.0, "times": 1.0},
    ],
    "edges": [{"name": "%2", "seconds": 0.5, "bytes": 1000.0}],
    "memory": [
        {"seat": "policy.generate", "items": {"weights": 10**9}, "asleep": {"policy.train": 10**9}},
        {"seat": "policy.train", "items": {"weights": 3 * 10**9}, "asleep": {}},
    ],
}
OPS = {
    "%0": ("generate", "policy", "rollout", 2.0, 0, 1.5e9),
    "%1": ("score", "", "data", 0.5, 0, 1e8),
    "%2": ("transfer", "policy", "rollout", 0.001, 1000, 0),
    "%3": ("mean", "", "train", 1e-5, 0, 1e8),
    "%4": ("logprobs", "policy", "train", 0.25, 0, 2e9),
    "%5": ("add", "", "train", 1e-5, 0, 1e8),
    "": ("step", "", "", 3.0, 1000, 2e9),
}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a run's folder: steps that are so many times slower."""

    def written(*slower, forecast=FORECAST):
        names = "kind", "role", "pool", "seconds", "bytes", "memory"
        rows = [
            {"step": number, "op": op, "times": 1, **dict(zip(names, its, strict=True))}
            for number in range(1, len(slower) + 1)
            for op, its in OPS.items()
        ]
        for row in rows:
            row["seconds"] *= slower[row["step"] - 1]
        (tmp_path / "ops.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "metrics.jsonl").write_text('{"step": 1, "tokens/sampled": 80.0}\n')
        machines = "2xH100" if forecast else ""
        plan = Plan("grpo", (), {}, {"name": "grpo"}, machines=machines, forecast=forecast)
        (tmp_path / "plan.json").write_text(plan.to_json())
        return tmp_path

    return written


def test_what_was_measured_stands_beside_what_was_predicted(written):
    assert measured_text(written(1.0, 1.1, 9.0)) == snapshot("""\
grpo: medians of 3 steps, beside the plan for 2xH100
op  of               pool     predicted  measured   ratio  bytes: predicted  measured  memory: predicted  measured
%0  generate policy  rollout     1.00 s    2.20 s     2.2                 -         -               2 GB    1.5 GB
%1  score            data             -    0.55 s       -                 -         -                  -         -
%2  transfer policy  rollout     0.50 s    1.1 ms  0.0022              1 kB      1 kB                  -         -
%4  logprobs policy  train       0.00 s    0.28 s       -                 -         -               3 GB      2 GB
    2 other ops                       -  0.022 ms       -                 -         -                  -         -
    step                         4.00 s    3.30 s   0.825              1 kB      1 kB               3 GB      2 GB
responses have 5.0 tokens on average: `[workload] response_tokens` is what plans go by\
""")


def test_without_a_plan_all_that_takes_long_is_shown(written):
    assert measured_text(written(1.0, forecast={})) == snapshot("""\
grpo: medians of 1 step, nothing is predicted
op  of               pool     seconds  bytes  memory
%0  generate policy  rollout   2.00 s      -  1.5 GB
%1  score            data      0.50 s      -       -
%2  transfer policy  rollout     1 ms   1 kB       -
%4  logprobs policy  train     0.25 s      -    2 GB
    2 other ops               0.02 ms      -       -
    step                       3.00 s   1 kB    2 GB\
""")


def test_rows_that_move_are_among_the_other_ops_unless_they_take_long(written):
    path = written(1.0, forecast={})
    moves = [("%6", 0.001, 40), ("%7", 0.002, 60), ("%8", 0.1, 900)]
    with (path / "ops.jsonl").open("a") as file:
        for op, seconds, size in moves:
            kind = {"step": 1, "op": op, "kind": "transfer", "role": "", "pool": "train"}
            file.write(json.dumps(kind | {"seconds": seconds, "bytes": size, "memory": 0}) + "\n")

    assert measured_text(path) == snapshot("""\
grpo: medians of 1 step, nothing is predicted
op  of               pool     seconds  bytes  memory
%0  generate policy  rollout   2.00 s      -  1.5 GB
%1  score            data      0.50 s      -       -
%2  transfer policy  rollout     1 ms   1 kB       -
%4  logprobs policy  train     0.25 s      -    2 GB
%8  transfer         train     0.10 s  900 B       -
    4 other ops                  3 ms  100 B       -
    step                       3.00 s   1 kB    2 GB\
""")


def test_medians_are_those_of_the_last_hundred_steps(written):
    text = measured_text(written(*[5.0] * 99, *[1.0] * 99))

    assert "medians of 100 steps" in text
    assert "3.00 s" in next(line for line in text.splitlines() if line.startswith("    step"))


def test_a_run_ends_with_its_table_which_is_read_again(folder, capsys):  # noqa: F811
    path = folder.write("grpo", added=MACHINES)

    assert main(["run", path]) == 0
    ended = capsys.readouterr().out.partition("grpo: ")[2]
    assert main(["plan", "--measured", str(folder.path / "out")]) == 0
    again = capsys.readouterr().out.partition("grpo: ")[2]

    assert again == ended
    assert "medians of 3 steps, beside the plan for 1xCPU" in again
    models = [
        line.split() for line in again.splitlines() if "policy" in line or "reference" in line
    ]
    assert [row[1] for row in models] == ["generate", "logprobs", "update"]
    assert all(float(row[8]) > 0 for row in models), "predicted, measured, and one by the other"


def test_a_run_that_writes_no_records_ends_without_a_table(folder, capsys):  # noqa: F811
    path = folder.write("sft")

    assert main(["run", path, "--set", "log.jsonl=false"]) == 0

    assert "medians" not in capsys.readouterr().out


def test_a_folder_of_no_run_is_refused(tmp_path):
    with pytest.raises(DataError) as refused:
        measured_text(tmp_path)

    assert str(refused.value).replace(str(tmp_path), "TMP") == snapshot("""\
`TMP` has no records of ops
help: name the folder of a run: with `[log] jsonl` it writes `ops.jsonl` at each step\
""")


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_step_whose_records_are_cut_off_is_left_out(written, cut):
    whole = measured_text(written(1.0))
    ops = written(1.0, 9.0) / "ops.jsonl"
    ops.write_text(ops.read_text()[:-cut])

    assert measured_text(ops.parent) == whole


@pytest.mark.parametrize("name", ["plan.json", "metrics.jsonl"])
def test_a_folder_that_lacks_what_a_run_writes_is_refused(written, name):
    file = written(1.0) / name
    file.unlink()

    with pytest.raises(DataError) as refused:
        measured_text(file.parent)

    assert refused.value.problem == f"`{file}` can't be read: No such file or directory"


def test_a_plan_that_was_not_written_to_its_end_is_refused(written):
    file = written(1.0) / "plan.json"
    file.write_text(file.read_text()[:9])

    with pytest.raises(DataError, match=r"plan\.json` can't be read: ") as refused:
        measured_text(file.parent)

    assert refused.value.hint == "name the folder of a run with all that it wrote"


def test_measured_takes_nothing_else(capsys):
    assert main(["plan", "run.toml", "--measured", "out"]) == 1

    assert capsys.readouterr().err == snapshot("""\
error: `--measured` takes a run's folder and nothing else
help: `flowrl plan --measured runs/x` reads what a run wrote
""")


def test_a_folder_is_a_profile_if_its_run_wrote_one(folder, capsys):  # noqa: F811
    path = folder.write("sft", added=MACHINES)
    (folder.path / "out").mkdir()

    assert main(["plan", path, "--profile", str(folder.path / "out")]) == 1

    assert capsys.readouterr().err.replace(str(folder.path), "FOLDER") == snapshot("""\
error: there is no profile in the folder `FOLDER/out`
help: a run writes `profile.json` with each checkpoint, if its `[cluster] machines` names what it runs on
""")
