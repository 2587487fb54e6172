import functools
import os.path
import sys

import pytest
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.resolve import Columns, columns, name_of, resolve


def message(name, folder, **options):
    with pytest.raises(RewardError) as caught:
        resolve(name, options, folder)
    return str(caught.value).replace(str(folder), "FOLDER")


def module_level(prompts, completions, answer, *, tolerance=0.1):
    return []


def test_a_file_is_imported_once_and_can_import_its_neighbours(write):
    write("SCORE = 0.25", "neighbour_of_reward.py")
    folder = write("from neighbour_of_reward import SCORE\ndef f(completions): return [SCORE]")

    function = resolve("rewards.py:f", {}, folder)

    assert function([""]) == [0.25]
    assert resolve("rewards.py:f", {}, folder) is function


def test_a_file_may_be_called_as_a_module_of_the_standard_library(write):
    folder = write("def f(completions): return [1.0]", "random.py")

    assert resolve("random.py:f", {}, folder)([""]) == [1.0]
    import random

    assert random.__file__ != str(folder / "random.py")


def test_a_function_in_a_module_or_class_is_found(write):
    folder = write("class Math:\n  @staticmethod\n  def f(completions): return [2.0]")

    assert resolve("os.path:basename", {}, folder) is os.path.basename
    assert resolve("rewards.py:Math.f", {}, folder)([""]) == [2.0]


def test_options_are_bound_and_no_longer_columns(write):
    folder = write("def f(completions, answer, scale, bias=0.0): return [scale + bias]")

    function = resolve("rewards.py:f", {"scale": 2.0, "bias": 1.0}, folder)

    assert function(completions=[""], answer=[""]) == [3.0]
    assert columns(function) == Columns(frozenset({"answer"}), texts=("completions",))


def test_a_name_that_leads_nowhere_says_what_there_is(write):
    folder = write("def score(completions): ...\ndef other(completions): ...\nLIMIT = 3")

    messages = [
        message("score", folder),
        message("reward.py:score", folder),
        message("elsewhere/reward.py:score", folder),
        message("rewards.py:scor", folder),
        message("rewards.py:LIMIT", folder),
        message("no_such_module.rewards:score", folder),
        message("rewards.py:score", folder, scale=1.0),
    ]

    assert "\n\n".join(messages) == snapshot("""\
expected a reward function as `path.py:name`, `package.module:name` or `reasoning_gym:TASK`; got `score`

there is no file `FOLDER/reward.py` (did you mean `rewards.py`?)
help: the folder's Python files: `rewards.py`

there is no file `FOLDER/elsewhere/reward.py`
help: the folder's Python files: none

`rewards.py` has no function `scor` (did you mean `score`?)
help: it has `score`, `other`

expected `rewards.py:LIMIT` to be a function, got int

there is no module `no_such_module` for the reward function's `no_such_module.rewards`
help: install it, or name a file: `path.py:name`

`rewards.py:score` has no parameter `scale`
help: it has none\
""")


def test_a_file_that_cannot_be_imported_is_told_with_its_line(write):
    folder = write("x = 1\nimport no_such_module")

    assert message("rewards.py:f", folder) == snapshot("""\
importing `rewards.py` raised ModuleNotFoundError: No module named 'no_such_module'
  rewards.py:2
    2 | import no_such_module
        ^^^^^^^^^^^^^^^^^^^^^\
""")
    assert str(folder / "rewards.py") not in [
        getattr(m, "__file__", "") for m in sys.modules.values()
    ]


def test_a_file_that_cannot_be_parsed_is_told_with_its_line(write):
    assert message("rewards.py:f", write("x = 1\ndef f(:")) == snapshot("""\
importing `rewards.py` raised SyntaxError: invalid syntax
  rewards.py:2
    2 | def f(:
              ^\
""")


@pytest.mark.parametrize(
    "error", ["BaseException", "asyncio.CancelledError", "SystemExit", "GeneratorExit"]
)
def test_a_file_that_raises_what_is_no_exception_is_told_with_its_line(write, error):
    folder = write(f"import asyncio\nraise {error}('no')")

    told = message("rewards.py:f", folder)

    assert told.startswith("importing `rewards.py` raised ")
    assert f"{error.removeprefix('asyncio.')}: no\n  rewards.py:2\n" in told


def test_ctrl_c_while_a_file_is_imported_passes(write):
    with pytest.raises(KeyboardInterrupt):
        resolve("rewards.py:f", {}, write("raise KeyboardInterrupt"))


def test_an_error_of_a_module_that_makes_its_functions_is_told_with_its_line(write):
    folder = write("def __getattr__(name):\n    raise ValueError(name)")

    assert message("rewards.py:f", folder) == snapshot("""\
importing `rewards.py:f` raised ValueError: f
  rewards.py:2
    2 |     raise ValueError(name)
            ^^^^^^^^^^^^^^^^^^^^^^\
""")


def test_columns_are_the_parameters_besides_the_texts():
    taken = {
        "all": columns(lambda prompts, completions, answer, tolerance=0.1, **rest: ...),
        "completions": columns(lambda completions: ...),
        "bound": columns(functools.partial(module_level, tolerance=0.2)),
    }

    assert taken == {
        "all": Columns(frozenset({"answer"}), frozenset({"tolerance"}), rest=True),
        "completions": Columns(frozenset(), texts=("completions",)),
        "bound": Columns(frozenset({"answer"})),
    }


def test_only_columns_that_are_taken_are_taken():
    present = ["answer", "tolerance", "level", "prompts"]

    assert columns(module_level).of(present) == ("answer", "tolerance")
    assert columns(lambda completions, **rest: ...).of(present) == ("answer", "level", "tolerance")


def test_positional_only_parameters_are_refused():
    with pytest.raises(RewardError) as caught:
        columns(lambda p, /: ...)

    assert str(caught.value) == snapshot("""\
a reward function is called by name, but `p` of `test_positional_only_parameters_are_refused.<locals>.<lambda>` is positional-only
help: define it as `f(prompts, completions, **columns)`\
""")


def test_a_function_whose_parameters_python_cannot_tell_is_refused():
    with pytest.raises(RewardError) as caught:
        columns(max)

    assert str(caught.value) == snapshot("""\
a reward function is called by name, but Python can't tell the parameters of `max`
help: define one that calls it: `f(prompts, completions, **columns)`\
""")


def test_a_function_has_a_name_if_it_can_be_found_by_it(write):
    local = lambda completions: []
    loaded = resolve("random.py:f", {}, write("def f(completions): return [1.0]", "random.py"))

    assert name_of(module_level) == f"{__name__}:module_level"
    assert name_of(os.path.basename) == "posixpath:basename"
    assert name_of(loaded).endswith("/random.py:f")
    assert name_of(local) is None
    assert name_of(functools.partial(module_level)) is None
    assert name_of([].append) is None
