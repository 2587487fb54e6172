"""Finding a program in a file."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import ProgramError
from flowrl.user_file import locating

HEAD = "import flowrl as fl\n\n"
PROGRAM = """
@fl.program
def {name}(policy: fl.Model, prompts: fl.Prompts):
    return policy
"""


@pytest.fixture
def file(tmp_path):
    """Write a file of this text."""

    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(HEAD + text)
        return path

    return write


@pytest.fixture
def error_of(tmp_path):
    """Return the text of the error that loading ends in, with the folder left out."""

    def text_of(given, name=None):
        with pytest.raises(ProgramError) as caught:
            load_program(given, name)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return text_of


def test_a_name_is_a_program_that_comes_with_flowrl():
    assert load_program("grpo").name == "grpo"
    assert list(builtin_programs()) == sorted(builtin_programs())


def test_the_file_of_a_program_that_comes_with_flowrl_is_that_program():
    assert load_program(builtin_programs()["grpo"]) is load_program("grpo")


def test_a_file_with_one_program_is_that_program(file):
    path = file(PROGRAM.format(name="mine"))

    assert load_program(path).name == "mine"
    assert load_program(str(path)).name == "mine"


def test_one_of_several_programs_is_named_after_a_colon(file):
    path = file(PROGRAM.format(name="one") + PROGRAM.format(name="two"))

    assert load_program(f"{path}:two").name == "two"
    assert load_program(path, "one").name == "one"


def test_imported_programs_do_not_count_beside_a_files_own(file):
    path = file("from programs.grpo import grpo\n" + PROGRAM.format(name="mine"))

    assert load_program(path).name == "mine"
    assert load_program(path, "grpo") is load_program("grpo")


def test_a_file_may_import_its_neighbours(file):
    file(PROGRAM.format(name="near"), "a_neighbour.py")
    path = file("from a_neighbour import near\n")

    assert load_program(path).name == "near"


def test_an_unknown_name_is_answered_with_the_nearest(error_of):
    assert error_of("grop") == (
        "there is no program `grop` (did you mean `grpo`?)\n"
        f"help: give a path that ends in .py, or one of {', '.join(builtin_programs())}"
    )


def test_a_missing_file_is_named(error_of, tmp_path):
    assert error_of(tmp_path / "nowhere.py").startswith("there is no file nowhere.py\nhelp: give a")


def test_a_folder_is_no_program(error_of, tmp_path):
    assert error_of(tmp_path).startswith("there is no program")


def test_a_file_without_a_program_says_how_to_make_one(error_of, file):
    assert error_of(file("x = 1\n")) == snapshot("""\
mine.py has no program
  mine.py
help: decorate the function of models and data: `@fl.program`\
""")


def test_several_programs_are_listed(error_of, file):
    path = file(PROGRAM.format(name="one") + PROGRAM.format(name="two"))

    assert error_of(path) == snapshot("""\
mine.py has several programs: one, two
  mine.py
help: choose one: `mine.py:one`, or `name` of [program] in a run file\
""")


def test_a_name_that_the_file_lacks_is_answered_with_the_nearest(error_of, file):
    path = file(PROGRAM.format(name="one") + PROGRAM.format(name="two"))

    assert error_of(f"{path}:tow") == snapshot("""\
mine.py has no program `tow` (did you mean `two`?)
  mine.py
help: it has one, two\
""")


def test_a_python_error_of_the_file_is_shown_at_its_line(error_of, file):
    assert error_of(file("def scale(x):\n    return x / 0\n\n\nHALF = scale(1)\n")) == snapshot("""\
running mine.py raised ZeroDivisionError: division by zero
  mine.py:4
    4 |     return x / 0
                   ^^^^^\
""")


def test_a_syntax_error_is_shown_at_its_line(error_of, file):
    assert error_of(file("def broken(:\n")) == snapshot("""\
running mine.py raised SyntaxError: invalid syntax
  mine.py:3
    3 | def broken(:
                   ^\
""")


def test_a_missing_module_is_shown_at_its_import(error_of, file):
    assert error_of(file("import no_such_module\n")) == snapshot("""\
running mine.py raised ModuleNotFoundError: No module named 'no_such_module'
  mine.py:3
    3 | import no_such_module
        ^^^^^^^^^^^^^^^^^^^^^\
""")


def test_an_error_of_the_language_stays_as_it_is(error_of, file):
    path = file("@fl.program\ndef mine(policy: int):\n    return policy\n")

    assert error_of(path).startswith("`mine`: argument `policy` must be annotated `fl.Model`")


def test_a_file_that_failed_can_be_loaded_once_it_is_right(error_of, file):
    error_of(file("1 / 0\n"))

    assert load_program(file(PROGRAM.format(name="mine"))).name == "mine"


def test_a_python_error_while_tracing_is_shown_at_its_line(file):
    path = file("@fl.program\ndef mine(policy: fl.Model):\n    return [policy][1]\n")
    program = load_program(path)

    with pytest.raises(ProgramError) as caught, locating(path):
        fl.trace(program)

    assert str(caught.value) == snapshot("""\
running mine.py raised IndexError: list index out of range
  mine.py:5
    5 |     return [policy][1]
                   ^^^^^^^^^^^\
""")


def test_an_op_that_is_not_there_names_the_nearest(error_of, file):
    path = file("advantages = fl.ops.group_advantages\n")

    assert error_of(path) == snapshot("""\
running mine.py raised AttributeError: module 'flowrl.ops' has no attribute 'group_advantages' (did you mean `group_advantage`?)
  mine.py:3
    3 | advantages = fl.ops.group_advantages
                     ^^^^^^^^^^^^^^^^^^^^^^^\
""")


@pytest.mark.parametrize("call", ["torch.tanh(policy)", "torch.nn.functional.softmax(policy, -1)"])
def test_a_function_of_torch_on_a_value_is_shown_at_its_line(file, call):
    path = file(f"import torch\n@fl.program\ndef mine(policy: fl.Model):\n    return {call}\n")
    program = load_program(path)

    with pytest.raises(ProgramError) as caught, locating(path):
        fl.trace(program)

    assert str(caught.value).startswith("running mine.py raised TypeError: torch's `")
    assert f"    return {call}" in str(caught.value)
