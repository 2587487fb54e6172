"""The graph of each program that comes with flowrl; `pytest --inline-snapshot=create,fix` renews them."""

import pytest
from inline_snapshot import external_file

from flowrl.cli import main
from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.printer import text
from flowrl.stages import trace


@pytest.mark.parametrize("name", builtin_programs())
def test_a_program_traces_to_its_golden_text(name):
    graph = trace(load_program(name)).graph

    assert text(graph) + "\n" == external_file(f"{name}.ir", format=".txt")


@pytest.mark.parametrize("name", builtin_programs())
def test_show_prints_the_golden_text(name, capsys):
    code = main(["show", name])

    assert code == 0
    assert capsys.readouterr().out == external_file(f"{name}.ir", format=".txt")
