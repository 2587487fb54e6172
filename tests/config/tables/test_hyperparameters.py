"""`[program]` against a signature."""

from inspect import signature
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from flowrl.config import check_hyperparameters
from flowrl.config.toml.source import Source
from flowrl.errors import RunFileError


def program(policy, prompts, *, samples=8, clip=0.2, kl_coef: float = 1, horizon: int): ...


TEXT = """\
[program]
file = "grpo"
clip_ratoi = 0.3
samples = 8.5
horizon = 3
"""


def test_unknown_names_and_wrong_types_are_located(tmp_path):
    (tmp_path / "run.toml").write_text(TEXT)
    source = Source.read(tmp_path / "run.toml")
    given = {"clip_ratoi": 0.3, "samples": 8.5, "horizon": 3}

    with pytest.raises(RunFileError) as caught:
        check_hyperparameters(given, signature(program), source, "ours")

    assert str(caught.value) == snapshot("""\
`ours` has no `clip_ratoi` (did you mean `clip`?)
  run.toml:3
    3 | clip_ratoi = 0.3
        ^^^^^^^^^^
also: `program.samples` must be an integer; got 8.5
  run.toml:4
    4 | samples = 8.5
        ^^^^^^^
help: the hyperparameters of `ours` are samples, clip, kl_coef, horizon\
""")


def test_a_program_without_any_says_so():
    source, bare = Source(Path("run.toml"), ""), signature(lambda policy: None)

    with pytest.raises(RunFileError, match=r"hyperparameters of `ours` are \(none\)"):
        check_hyperparameters({"clip": 1}, bare, source, "ours")


def test_one_without_default_must_be_given():
    source = Source(Path("run.toml"), "")

    with pytest.raises(RunFileError, match=r"\[program\] lacks `horizon`"):
        check_hyperparameters({}, signature(program), source, "ours")


def test_an_integer_serves_as_a_number_and_a_model_is_no_hyperparameter():
    source = Source(Path("run.toml"), "")

    checked = check_hyperparameters(
        {"kl_coef": 0, "horizon": 2}, signature(program), source, "ours"
    )

    assert checked == {"kl_coef": 0.0, "horizon": 2}
    assert isinstance(checked["kl_coef"], float)
    with pytest.raises(RunFileError, match="`ours` has no `policy`"):
        check_hyperparameters({"policy": 1, "horizon": 2}, signature(program), source, "ours")
