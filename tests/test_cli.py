"""The command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from inline_snapshot import snapshot

from flowrl import cli
from flowrl.cli import main
from flowrl.compiler.pipeline import PASSES
from flowrl.ir.plan import Plan
from flowrl.report.show import PASS

RUN = """\
[program]
file = "grpo"

[models.policy]
path = "model"

[models.reference]
path = "model"

[cluster.pools.train]
roles = ["policy.train"]

[cluster.pools.rollout]
roles = ["policy.generate", "reference", "data", "reward"]

[data]
source = "train.jsonl"

[reward]
reward = "reward.py:exact"

[train]
steps = 100
prompts_per_step = 32
"""


@pytest.fixture
def run_file(tmp_path):
    """Write a run file with lines added at its end."""

    def write(added="", text=RUN):
        path = tmp_path / "run.toml"
        (tmp_path / "reward.py").write_text(
            "def exact(completions): return [0.0 for _ in completions]"
        )
        path.write_text(text + added)
        return str(path)

    return write


@pytest.fixture
def told(capsys):
    """Return a command's exit code, what it prints and what it says on stderr."""

    def run(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_every_stage_is_that_of_a_pass():
    passes = [run.__name__ for run in PASSES]

    assert get_args(cli.Stage) == ("traced", *PASS)
    assert list(dict.fromkeys(PASS.values())) == passes


def test_show_prints_each_stage(told):
    stages = {s: told("show", "grpo", "--stage", s)[1] for s in ("traced", "simplify", "losses")}

    assert stages["traced"].startswith("graph grpo {samples=8, clip=0.2, kl_coef=0.001}")
    assert "region part" not in stages["simplify"]
    assert "region part" in stages["losses"]


def test_show_places_a_run_files_program_on_its_pools(told, run_file):
    _, placed, _ = told("show", run_file(), "--stage", "place")
    _, moved, _ = told("show", run_file(), "--stage", "transfer")

    assert "transfer(" not in placed
    assert "= transfer(%policy) {src=train, dst=rollout} @rollout" in moved


def test_show_prints_the_plan_as_json_that_reads_back(told, run_file):
    code, out, _ = told("show", run_file(), "--stage", "plan")

    assert code == 0
    assert [pool["name"] for pool in json.loads(out)["pools"]] == ["train", "rollout"]
    assert Plan.from_json(out).graph().name == "grpo"


def test_show_draws(told):
    assert told("show", "grpo", "--format", "mermaid")[1].startswith("flowchart TD")
    assert told("show", "grpo", "--format", "dot")[1].startswith('digraph "grpo" {')


def test_sets_are_hyperparameters_of_a_program(told):
    _, out, _ = told("show", "grpo", "--set", "samples=4", "--set", "clip=1")

    assert out.startswith("graph grpo {samples=4, clip=1, kl_coef=0.001}")


def test_sets_are_keys_of_a_run_file(told, run_file):
    _, out, _ = told("show", run_file(), "--set", "program.samples=4")

    assert out.startswith("graph grpo {samples=4,")


def test_the_run_files_temperature_is_in_the_types(told, run_file):
    added = "[engines.policy.generate]\ntemperature = 0.7\n"

    assert "{policy.0 T=0.7 sampled}" in told("show", run_file(added))[1]


def test_check_of_a_program_says_what_the_passes_found(told):
    assert told("check", "dpo") == snapshot(
        (
            0,
            """\
`dpo` is sound.
The loss at dpo.py:19 takes two passes, which costs one more forward pass: dpo_loss looks beyond single sequences at dpo.py:16.
""",
            "",
        )
    )


def test_check_of_a_program_refuses_groups_of_one(told):
    code, _, error = told("check", "grpo", "--set", "samples=1")

    assert code == 1
    assert "group_advantage: compares the samples of a prompt" in error


def test_check_of_a_run_file_says_what_a_step_is(told, run_file):
    assert told("check", run_file(), "--set", "program.kl_coef=0") == snapshot(
        (
            0,
            """\
`run.toml` and its program `grpo` are sound.
A step samples 8 completions of each of 32 prompts: 256 sequences, one update of 256; microbatches hold at most 4096 tokens.
`policy` samples with the tensors that train: no weights move
[cluster.pools] changes nothing: `cluster.executor` is "local", one process (run.toml:10).
`models.policy.path`: there is no folder `model` here; a run needs it.
`data.source`: there is no file `train.jsonl` here; a run needs it.
`reference` is never read and never loaded: kl_coef = 0.
""",
            "",
        )
    )


def test_a_model_that_nothing_reads_need_not_be_given(told, run_file):
    text = RUN.replace('[models.reference]\npath = "model"\n', "").replace('"reference", ', "")

    assert told("check", run_file("", text), "--set", "program.kl_coef=0")[0] == 0
    assert told("check", run_file("", text)) == snapshot(
        (
            1,
            "",
            """\
error: [models] lacks `reference`, a model of the program
  run.toml:4
    4 | [models.policy]
         ^^^^^^
help: add `[models.reference]` with its `path`; the program's models are policy, reference
""",
        )
    )


def test_check_finds_what_the_run_file_and_the_program_disagree_on(told, run_file):
    assert told("check", run_file(), "--set", "program.samples=x")[2] == snapshot("""\
error: `program.samples` must be an integer; got "x"
  --set program.samples=x
""")
    assert told("check", run_file("[eval.data]\nsorce = 'x'\n"))[2] == snapshot("""\
error: unknown key `sorce` in [eval.data] (did you mean `source`?)
  run.toml:26
   26 | sorce = 'x'
        ^^^^^
help: the keys of [eval.data] are source, options, split, prompt_key, completion_key, chosen_key, rejected_key, template, system, chat, examples, shuffle, sampler, seed, epochs, max_prompt_tokens, on_long_prompt, on_bad_row, limit, skip_rows, unique_key, exclude
""")
    assert told("check", run_file("", RUN.replace("reward = ", "other = ")))[2] == snapshot("""\
error: the program scores by `reward`, but [reward] has `other`
  run.toml:19
   19 | [reward]
         ^^^^^^
  grpo.py:15
   15 |     rollouts, rewards = ops.score("reward", rollouts)      # f32[prompt, sample]; dropped rows are gone from both
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: bind it in [reward]: `reward = "path.py:function"`
""")


def test_check_finds_a_reward_function_that_is_not_there(told, run_file):
    assert told("check", run_file(), "--set", "reward.reward=reward.py:exat") == snapshot(
        (
            1,
            "",
            """\
error: `reward.py` has no function `exat` (did you mean `exact`?)
  --set reward.reward=reward.py:exat
help: it has `exact`
""",
        )
    )


def test_check_finds_batches_that_do_not_divide(told, run_file):
    text = RUN.replace('"grpo"', '"ppo"\nminibatch = 5').replace(
        "[models.reference]", "[models.critic]\npath = 'm'\n[models.reference]"
    )

    assert told("check", run_file("", text)) == snapshot(
        (
            1,
            "",
            """\
error: 32 responses a step (`train.prompts_per_step` = 32 x samples = 1) don't split into minibatches of 5: remainder 2
  run.toml:27
   27 | prompts_per_step = 32
        ^^^^^^^^^^^^^^^^
  ppo.py:22
   22 |     (policy, critic), stats = ops.scan(body, (policy, critic), ops.minibatches(batch, sequences=minibatch, epochs=epochs))
                                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: a minibatch of 4 fits
""",
        )
    )


def test_diff_prints_what_changed(told):
    assert told("diff", "grpo", "grpo", "--set", "kl_coef=0.5") == snapshot(
        (
            0,
            """\
grpo -> grpo
~ hyperparameters: kl_coef: 0.001 -> 0.5
~ update policy / mul: argument 1: 0.001 -> 0.5  # grpo.py:21
""",
            "",
        )
    )


def test_diff_takes_run_files(told, run_file):
    code, out, _ = told("diff", "grpo", run_file("[engines.policy.generate]\ntemperature = 0.7\n"))

    assert code == 0
    assert "~ generate: + temperature=0.7" in out


@pytest.mark.parametrize("command", ["show", "check", "run"])
def test_a_missing_file_is_an_error_of_one_line(told, command):
    code, out, err = told(command, "nowhere.toml")

    assert (code, out) == (1, "")
    assert err.startswith("error: can't read the run file")
    assert "Traceback" not in err


def test_a_wrong_hyperparameter_is_an_error(told):
    assert told("show", "grpo", "--set", "clip=x") == snapshot(
        (
            1,
            "",
            """\
error: `program.clip` must be a number; got "x"
  --set clip=x
""",
        )
    )
    assert told("show", "grpo", "--set", "clp=1")[2].startswith(
        "error: `grpo` has no hyperparameter `clp` (did you mean `clip`?)"
    )


@pytest.mark.parametrize(
    "arguments", [("bogus",), ("show",), ("diff", "grpo"), ("show", "grpo", "--stage", "no")]
)
def test_a_wrong_command_line_exits_with_2(told, arguments):
    assert told(*arguments)[0] == 2


def test_help_lists_the_commands(told):
    code, out, _ = told("--help")

    assert code == 0
    assert all(f" {command} " in out for command in ("show", "check", "diff", "run", "eval"))


def test_an_interrupt_exits_with_130(told, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("flowrl.report.check.checked", interrupt)

    assert told("check", "grpo") == (130, "", "")


def test_looking_imports_no_torch_and_takes_a_program_from_the_working_directory(tmp_path):
    (tmp_path / "mine.py").write_text(
        Path(cli.__file__).parents[1].joinpath("programs/ppo.py").read_text()
    )
    script = """
import sys
from flowrl.cli import main
codes = main(["show", "mine.py", "--stage", "plan"]), main(["check", "mine.py:ppo"])
heavy = [name for name in ("torch", "transformers", "datasets", "ray") if name in sys.modules]
sys.exit(f"{codes} {heavy}" if heavy or any(codes) else 0)
"""
    root = str(Path(cli.__file__).parents[1])

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert "`ppo` is sound." in done.stdout


def test_a_reader_that_stops_early_is_no_error():
    root = str(Path(cli.__file__).parents[1])
    script = "import sys; from flowrl.cli import main; sys.exit(main(['show', 'ppo', '--stage', 'plan']))"

    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read()

    assert (process.returncode, said) == (0, b"")


def test_a_program_that_a_set_names_is_located_at_the_set(told, run_file):
    _, _, error = told("check", run_file(), "--set", "program.name=nosuch")

    folder = str(Path(cli.__file__).parent.parent)
    assert error.replace(folder, "ROOT") == snapshot("""\
error: grpo.py has no program `nosuch`
  ROOT/programs/grpo.py
  --set program.name=nosuch
help: it has grpo
""")


def test_a_program_file_that_leaves_is_an_error(told, tmp_path):
    (tmp_path / "leaves.py").write_text("import sys\n\nsys.exit(0)\n")

    assert told("check", str(tmp_path / "leaves.py")) == snapshot(
        (
            1,
            "",
            """\
error: running leaves.py raised SystemExit: 0
  leaves.py:3
    3 | sys.exit(0)
        ^^^^^^^^^^^
""",
        )
    )


def test_leaving_anywhere_in_a_command_is_an_error(told, monkeypatch):
    monkeypatch.setattr("flowrl.report.check.checked", lambda *_: sys.exit(0))

    assert told("check", "grpo") == snapshot((1, "", "error: the program left by sys.exit(0)\n"))


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "flowrl", "check", "no such file"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "no such file" in done.stderr
