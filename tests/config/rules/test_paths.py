"""Texts that can be no path are told with their line, before anything looks there."""

import pytest
from inline_snapshot import snapshot

LONG = "a" * 300


@pytest.mark.parametrize(
    "key",
    ["program.file", "models.policy.path", "train.folder", "data.source"],
)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LONG + ".py", "File name too long"),
        ("~nobody-of-this-name/x.py", "Could not determine home directory."),
        ("a\\u0000b.py", "embedded null byte"),
    ],
)
def test_what_can_be_no_path_is_told_by_its_key(key, text, why, error_of):
    said = error_of("", f'{key}="{text}"')

    assert said.splitlines()[0] == f"`{key}` can't be looked up: {why}"


def test_a_function_of_a_file_that_can_be_none_is_told_too(error_of):
    said = error_of("", f'reward.exact="{LONG}.py:exact"')

    assert said.startswith("`reward.exact.function` can't be looked up: File name too long\n")


def test_it_is_told_with_its_line(error_of):
    assert error_of('[workload]\nprofile = "~nobody-of-this-name/p.json"\n') == snapshot("""\
`workload.profile` can't be looked up: Could not determine home directory.
  run.toml:21
   21 | profile = "~nobody-of-this-name/p.json"
        ^^^^^^^\
""")


def test_a_file_in_the_way_of_a_path_is_left_to_who_reads_it(load, tmp_path):
    (tmp_path / "model").write_text("")

    assert load("", 'models.policy.path="model/inside"').models["policy"].path == "model/inside"


def test_the_folder_of_a_run_that_is_a_file_is_told_with_its_line(load, error_of, tmp_path):
    (tmp_path / "out").write_text("")
    (tmp_path / "made").mkdir()

    assert error_of("folder = 'out'\n") == snapshot("""\
`train.folder` must name a folder; `out` is a file
  run.toml:20
   20 | folder = 'out'
        ^^^^^^\
""")
    assert load("", "train.folder='made'").folder == tmp_path / "made"
    assert load("", "train.folder='new'").folder == tmp_path / "new"


@pytest.mark.parametrize("folder", ["out/run", "out/../run", "./out/a/b", "{here}/out/run"])
def test_a_file_above_the_folder_of_a_run_is_told(error_of, tmp_path, folder):
    (tmp_path / "out").write_text("")
    file = tmp_path / "out" if "here" in folder else "out"

    said = error_of("", f"train.folder='{folder.format(here=tmp_path)}'")

    assert said.startswith(f"`train.folder` must name a folder; `{file}` is a file\n  --set ")


def test_what_is_in_the_way_of_a_folder_that_is_not_named_is_told(load, error_of, tmp_path):
    assert load().folder == tmp_path / "runs" / "run"
    (tmp_path / "runs").touch()

    assert error_of() == snapshot("""\
`train.folder` must name a folder; `runs` is a file
  run.toml:17
   17 | [train]
         ^^^^^\
""")


def test_a_device_is_no_folder_of_a_run(error_of):
    for folder in ("/dev/null", "/dev/null/run"):
        said = error_of("", f"train.folder='{folder}'")
        assert said.startswith("`train.folder` must name a folder; `/dev/null` is a file\n")


@pytest.mark.parametrize("below", ["", "/run", "/a/b"])
def test_a_folder_of_a_run_that_links_to_nothing_is_told(error_of, tmp_path, below):
    (tmp_path / "dangling").symlink_to("nothing")

    assert error_of("", f"train.folder='dangling{below}'").splitlines() == [
        "`train.folder` must name a folder; `dangling` is a link that leads to nothing",
        f"  --set train.folder='dangling{below}'",
    ]


def test_a_folder_of_a_run_that_links_to_itself_or_to_no_path_is_told(load, error_of, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "long").symlink_to("x" * 300)
    (tmp_path / "made").mkdir()
    (tmp_path / "linked").symlink_to("made")

    assert load("", "train.folder='linked/new'").folder == tmp_path / "linked" / "new"
    assert error_of("", "train.folder='loop'") == snapshot("""\
`train.folder` must name a folder; `loop` is a link that leads to nothing
  --set train.folder='loop'\
""")
    assert error_of("", "train.folder='loop/run'") == snapshot("""\
`train.folder` can't be looked up: Too many levels of symbolic links
  --set train.folder='loop/run'\
""")
    assert error_of("", "train.folder='long'") == snapshot("""\
`train.folder` can't be looked up: File name too long
  --set train.folder='long'\
""")
