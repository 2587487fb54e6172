"""The graph of each program that comes with flowrl; `pytest --inline-snapshot=create,fix` renews them."""

import re
from pathlib import Path

import pytest
from inline_snapshot import external_file

from flowrl.cli import main
from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.printer import text
from flowrl.stages import trace

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", builtin_programs())
def test_a_program_traces_to_its_golden_text(name):
    graph = trace(load_program(name)).graph

    assert text(graph) + "\n" == external_file(f"{name}.ir", format=".txt")


@pytest.mark.parametrize("name", builtin_programs())
def test_show_prints_the_golden_text(name, capsys):
    code = main(["show", name])

    assert code == 0
    assert capsys.readouterr().out == external_file(f"{name}.ir", format=".txt")


def test_the_table_of_algorithms_has_every_program_and_the_paper_that_it_cites():
    page = (ROOT / "docs" / "algorithms.md").read_text()
    named = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}

    assert named.keys() == builtin_programs().keys()
    for name, path in builtin_programs().items():
        cited = re.findall(r"arXiv:([\d.]+\d)", path.read_text().split('"""')[1])
        assert cited[:1] == re.findall(r"arxiv.org/abs/([\d.]+)", named[name])
