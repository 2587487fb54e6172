"""What is said of folders, files and functions that a run file names, before anything is loaded."""

import sys

import pytest
from inline_snapshot import snapshot

from tests.test_cli import RUN, run_file, told  # noqa: F401

ROWS = """
def rows(count, level="easy"):
    raise RuntimeError("no row is read")

ROWS = [{"prompt": "a"}]
"""


def test_check_says_which_model_folders_are_not_there(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "train.jsonl").touch()
    file = run_file()
    paths = "models.policy.path=gpt", "models.reference.path=./nowhere"
    hub = "models.policy.path=org/name", "models.reference.path=org/name"
    unread = "models.reference.path=./nowhere", "program.kl_coef=0"

    code, out, _ = told("check", file, "--set", paths[0], "--set", paths[1])
    assert code == 0
    assert [line for line in out.splitlines() if "no folder" in line] == snapshot(
        [
            "`models.policy.path`: there is no folder `gpt` here; a run needs it.",
            "`models.reference.path`: there is no folder `./nowhere` here; a run needs it.",
        ]
    )
    dashes = told("check", file, "--set", "models.policy.path=org/my--name")[1]
    assert "no folder `org/my--name`" in dashes
    assert "no folder" not in told("check", file, "--set", hub[0], "--set", hub[1])[1]
    assert "`./nowhere`" not in told("check", file, "--set", unread[0], "--set", unread[1])[1]


def test_check_says_which_files_of_rows_are_not_there(told, run_file, tmp_path):  # noqa: F811
    file = run_file('[eval.data]\nsource = "heldout/*.parquet"\n')

    missing = told("check", file)[1].splitlines()
    (tmp_path / "train.jsonl").touch()
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "a.parquet").touch()

    assert [line for line in missing if "no file" in line] == snapshot(
        [
            "`data.source`: there is no file `train.jsonl` here; a run needs it.",
            "`eval.data.source`: there is no file `heldout/*.parquet` here; a run needs it.",
        ]
    )
    assert "no file" not in told("check", file)[1]
    assert "no file `b*`" in told("check", file, "--set", "data.source=b*")[1]


def test_check_says_which_sources_of_no_file_are_not_there(told, run_file, tmp_path):  # noqa: F811
    file = run_file()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "dataset_dict.json").touch()

    def said(source):
        lines = told("check", file, "--set", f"data.source={source}")[1].splitlines()
        return [line for line in lines if "data.source" in line]

    assert said("saved") + said("./saved") + said("none.py:rows") == snapshot(
        [
            "`data.source`: there is no folder `saved` here; a run needs it.",
            "`data.source`: there is no folder `./saved` here; a run needs it.",
            "`data.source`: there is no file `none.py` here; a run needs it.",
        ]
    )
    assert said("here") + said("org/name") + said("org/name:train") == []


def test_check_reads_no_row_of_a_function(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(ROWS)
    file = run_file()

    def found(source):
        return told("check", file, "--set", f"data.source=mine.py:{source}")

    assert found("rows?count=3")[0] == found("ROWS")[0] == 0
    assert found("row")[2] == snapshot("""\
error: `data.source`: mine.py has no `row` (did you mean `rows`?)
  --set data.source=mine.py:row
mine.py:row
help: it has rows, ROWS
""")
    assert found("rows?level=hard")[2] == snapshot("""\
error: `data.source`: `options` do not fit rows(count, level='easy'): missing a required argument: 'count'
  --set data.source=mine.py:rows?level=hard
mine.py:rows
""")
    assert found("ROWS?count=3")[2] == snapshot("""\
error: `data.source`: this is not a function, so it takes no `options`
  --set data.source=mine.py:ROWS?count=3
mine.py:ROWS
""")


def test_check_refuses_a_source_that_is_of_no_kind(told, run_file):  # noqa: F811
    assert told("check", run_file(), "--set", "data.source=mine:rows")[2] == snapshot("""\
error: `data.source`: there is no such data source
  --set data.source=mine:rows
mine:rows
help: write a path or glob of .jsonl, .csv, .parquet, .arrow files, a folder saved by `datasets`, a name on the hub (org/name), reasoning_gym:TASK, or path.py:name
""")


def test_check_names_the_line_of_a_source_that_cannot_be_imported(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text("ROWS = [1 / 0]\n")
    (tmp_path / "late.py").write_text("ROWS = open('elsewhere.jsonl')\n")
    file = run_file()

    assert told("check", file, "--set", "data.source=mine.py:ROWS")[2] == snapshot("""\
error: `data.source`: running mine.py raised ZeroDivisionError: division by zero
  --set data.source=mine.py:ROWS
  mine.py:1
    1 | ROWS = [1 / 0]
                ^^^^^
""")
    code, out, _ = told("check", file, "--set", "data.source=late.py:ROWS")
    assert (code, out.splitlines()[-1]) == snapshot(
        (
            0,
            "`data.source`: running late.py raised FileNotFoundError: [Errno 2] No such file or directory: 'elsewhere.jsonl'; a run needs it.",
        )
    )


@pytest.mark.parametrize("name", ["TEXT", "ROW", "COUNT"])
def test_check_refuses_a_source_that_is_no_rows(told, run_file, tmp_path, name):  # noqa: F811
    (tmp_path / "mine.py").write_text("TEXT, ROW, COUNT = 'prompt', {'prompt': 'a'}, 3\n")

    error = told("check", run_file(), "--set", f"data.source=mine.py:{name}")[2]

    kind = {"TEXT": "str", "ROW": "dict", "COUNT": "int"}[name]
    assert f"error: `data.source`: expected rows; got {kind}\n" in error


def test_check_looks_up_what_is_excluded(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(ROWS)
    file = run_file()

    def found(excluded, source="data.source=train.jsonl"):
        sets = f"data.exclude={excluded}", "data.unique_key=prompt", source
        return told("check", file, *(text for each in sets for text in ("--set", each)))

    assert found("mine.py:ROWS")[0] == found("mine.py:rows?count=2")[0] == 0
    assert found("mine.py:rows", "data.source=mine.py:rows?count=3")[0] == 0
    assert found("none.jsonl")[1].splitlines()[-1] == snapshot(
        "`data.exclude`: there is no file `none.jsonl` here; a run needs it."
    )
    assert found("mine.py:rows")[2] == snapshot("""\
error: `data.exclude`: `options` do not fit rows(count, level='easy'): missing a required argument: 'count'
  --set data.exclude=mine.py:rows
mine.py:rows
""")
    alone = told("check", file, "--set", "data.exclude=mine.py:ROWS")[2]
    assert alone == snapshot("""\
error: `data.exclude` needs `unique_key`, the column by which rows are told apart
  --set data.exclude=mine.py:ROWS
""")
    assert found("")[2] == snapshot("""\
error: `data.exclude`: there is no such data source
  --set data.exclude=
help: write a path or glob of .jsonl, .csv, .parquet, .arrow files, a folder saved by `datasets`, a name on the hub (org/name), reasoning_gym:TASK, or path.py:name
""")


def test_check_refuses_a_file_of_no_known_kind(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.json").touch()

    error = told("check", run_file(), "--set", "data.source=data/train.json")[2]

    assert error == snapshot("""\
error: `data.source`: expected .jsonl, .csv, .parquet, .arrow files; got data/train.json
  --set data.source=data/train.json
data/train.json
""")


def test_check_refuses_a_folder_that_datasets_did_not_save(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state.json").touch()

    assert told("check", run_file(), "--set", "data.source=data/")[2] == snapshot("""\
error: `data.source`: expected a folder saved by `datasets`, with dataset_dict.json, or dataset_info.json and state.json
  --set data.source=data/
data/
help: name files by a path or glob, such as `data/*.parquet`
""")


def test_check_refuses_a_template_that_no_row_can_fill_in(told, run_file):  # noqa: F811
    file = run_file()

    def found(template):
        return told("check", file, "--set", f"data.template={template}")

    assert found("{question}: {{x}}")[0] == 0
    assert found("{")[2] == snapshot("""\
error: `data.template` is not a template: Single '{' encountered in format string
  --set data.template={
help: a column is written {question}, {question!r} (or `!s`, `!a`) or {score:.2f}; a plain brace {{ or }}
""")
    assert found("{first name}")[2] == snapshot("""\
error: `data.template` has a field without a column's name: '{first name}'
  --set data.template={first name}
help: a column is written {question}, {question!r} (or `!s`, `!a`) or {score:.2f}; a plain brace {{ or }}
""")


def test_check_refuses_a_template_whose_formats_no_column_has(told, run_file):  # noqa: F811
    text = RUN.replace(
        'source = "train.jsonl"', 'source = "train.jsonl"\ntemplate = "{question!x}"'
    )

    assert told("check", run_file("", text))[2] == snapshot("""\
error: `data.template` is not a template: Unknown conversion specifier x
  run.toml:18
   18 | template = "{question!x}"
        ^^^^^^^^
help: a column is written {question}, {question!r} (or `!s`, `!a`) or {score:.2f}; a plain brace {{ or }}
""")
    assert told("check", run_file(), "--set", "data.template={level:zz}")[2] == snapshot("""\
error: `data.template` is not a template: neither text nor numbers nor dates have the format 'zz'
  --set data.template={level:zz}
help: a column is written {question}, {question!r} (or `!s`, `!a`) or {score:.2f}; a plain brace {{ or }}
""")
    assert told("check", run_file(), "--set", "data.template={level!r:>9}")[0] == 0


def test_check_finds_a_sampler_that_is_not_there(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(
        "_N = 1\ndef hardest_first(rows, epoch, seed): ...\ndef _of_rows(rows): ...\n"
    )
    file = run_file()

    def found(sampler):
        return told("check", file, "--set", f"data.sampler={sampler}")

    assert found("mine.py:hardest_first")[0] == 0
    assert found("mine.py:hardest")[2] == snapshot("""\
error: `data.sampler`: mine.py has no `hardest` (did you mean `hardest_first`?)
  --set data.sampler=mine.py:hardest
mine.py:hardest
help: it has hardest_first
""")
    assert found("hardest_first")[2] == snapshot("""\
error: `data.sampler`: expected `path.py:name`
  --set data.sampler=hardest_first
hardest_first
""")
    assert found("mine.py:_of_rows")[2] == snapshot("""\
error: `data.sampler`: a sampler is called with (rows, epoch, seed), not (rows): too many positional arguments
  --set data.sampler=mine.py:_of_rows
mine.py:_of_rows
""")
    assert found("mine.py:_N")[2] == snapshot("""\
error: `data.sampler`: expected a function; got int
  --set data.sampler=mine.py:_N
mine.py:_N
""")
    assert found("none.py:hardest_first")[1].splitlines()[-1] == snapshot(
        "`data.sampler`: there is no file `none.py` here; a run needs it."
    )


def test_check_refuses_data_of_async_functions(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(
        "async def rows(): return []\nasync def each(): yield {}\n"
        "async def order(rows, epoch, seed): return []\n"
    )
    file = run_file()

    assert told("check", file, "--set", "data.source=mine.py:rows")[2] == snapshot("""\
error: `data.source`: expected a plain function; got an `async def`
  --set data.source=mine.py:rows
mine.py:rows
help: call it by another: `def f(...): return asyncio.run(...)`
""")
    for key, name in (("source", "each"), ("sampler", "order")):
        error = told("check", file, "--set", f"data.{key}=mine.py:{name}")[2]
        assert error.startswith(f"error: `data.{key}`: expected a plain function")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of rewards that is installed."""
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders" / "maths.py").write_text("def exact(completions): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("graders", "graders.maths"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_check_finds_what_a_package_of_rewards_does_not_have(told, run_file):  # noqa: F811
    file = run_file()

    def found(function):
        return told("check", file, "--set", f"reward.reward={function}")

    assert found("graders.maths:exact")[0] == 0
    assert found("graders.maths:exactly")[2] == snapshot("""\
error: `graders.maths` has no function `exactly` (did you mean `exact`?)
  --set reward.reward=graders.maths:exactly
help: it has `exact`
""")
    assert found("graders.physics:exact")[2] == snapshot("""\
error: there is no module `graders.physics` for the reward function's `graders.physics`
  --set reward.reward=graders.physics:exact
help: install it, or name a file: `path.py:name`
""")
    assert found("graders/maths:exact")[2] == snapshot("""\
error: there is no module `graders/maths` for the reward function's `graders/maths`
  --set reward.reward=graders/maths:exact
help: install it, or name a file: `path.py:name`
""")


def test_check_says_which_packages_of_rewards_are_not_there(told, run_file):  # noqa: F811
    file, several = run_file(), "{maths = 'nowhere.maths:exact', code = 'reward.py:exact'}"

    code, out, _ = told("check", file, "--set", f"reward.reward={{function={several}}}")

    assert (code, out.splitlines()[-1]) == snapshot(
        (0, "`reward.reward`: there is no package `nowhere` here; a run needs it.")
    )
    assert told("check", file, "--set", "reward.reward=nowhere.maths:exact")[1] == out


def test_check_says_what_a_file_of_rewards_needs_and_is_not_there(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "graders_a.py").write_text("import nowhere\n")
    (tmp_path / "graders_b.py").write_text("TABLE = open('elsewhere.json')\n")
    (tmp_path / "graders_c.py").write_text("import os.nowhere\n")
    file = run_file()

    def found(name):
        return told("check", file, "--set", f"reward.reward={name}.py:exact")

    said = [found(name)[1].splitlines()[-1] for name in ("graders_a", "graders_b")]
    assert said == snapshot(
        [
            "`reward.reward`: importing `graders_a.py` raised ModuleNotFoundError: No module named 'nowhere'; a run needs it.",
            "`reward.reward`: importing `graders_b.py` raised FileNotFoundError: [Errno 2] No such file or directory: 'elsewhere.json'; a run needs it.",
        ]
    )
    assert found("graders_c")[0] == 1


def test_check_refuses_names_that_can_be_of_no_reward(told, run_file):  # noqa: F811
    file = run_file()

    def found(function):
        return told("check", file, "--set", f"reward.reward={function}")[2].splitlines()[0]

    assert [found("nowhere:"), found("__main__:no_such_function")] == snapshot(
        [
            "error: expected a reward function as `path.py:name`, `package.module:name` or `reasoning_gym:TASK`; got `nowhere:`",
            "error: `__main__` has no function `no_such_function`",
        ]
    )
    assert found("builtins:max") == snapshot(
        "error: a reward function is called by name, but Python can't tell the parameters of `max`"
    )
