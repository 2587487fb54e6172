"""README.md says what is."""

import re
from pathlib import Path

import pytest

from flowrl.cli import app
from flowrl.config.programs import builtin_programs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = [block.partition("\n")[2] for block in README.split("```")[1::2]]


def test_it_shows_grpo_as_it_stands():
    source = builtin_programs()["grpo"].read_text()

    assert source[source.index("import flowrl") :] in README


@pytest.mark.parametrize("golden", ["tests/programs/grpo.ir", "tests/report/plans/grpo-8xH100.txt"])
def test_it_shows_parts_of_what_is_printed(golden):
    """`...` stands for lines, or for the end of one."""
    printed = (ROOT / golden).read_text()
    (shown,) = [block for block in BLOCKS if block.splitlines()[0] == printed.splitlines()[0]]

    lines = [
        "(.*\n)+?" if line == "..." else re.escape(line).replace(r"\ \.\.\.", " .*") + "\n"
        for line in shown.splitlines()
    ]

    assert re.fullmatch("".join(lines), printed)


def test_it_names_every_program():
    section = README.partition("## Programs")[2].partition("## Commands")[0]

    assert sorted(re.findall(r"`(\w+)`", section)) == sorted(builtin_programs())


def test_it_has_every_command():
    section = README.partition("## Commands")[2].partition("## Read on")[0]

    assert sorted(re.findall(r"`flowrl (\w+)", section)) == sorted(
        name for name in app if not name.startswith("-")
    )


def test_it_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", *sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")
)])  # fmt: skip
def test_every_link_leads_somewhere(file):
    text = (ROOT / file).read_text()
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    paths = [link.partition("#")[0] for link in links if "://" not in link]

    assert [path for path in paths if path and not ((ROOT / file).parent / path).exists()] == []
