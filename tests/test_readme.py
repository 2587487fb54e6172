"""README.md says what is."""

import re
from pathlib import Path

import pytest
from inline_snapshot import external_file

from flowrl.cli import app
from flowrl.config.programs import builtin_programs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = [block.partition("\n")[2] for block in README.split("```")[1::2]]
GOLDEN = {"graph": "tests/programs/grpo.ir", "grpo on": "tests/report/plans/grpo-8xH100.txt"}
"""What is printed, by how it begins."""


def test_it_shows_grpo_as_it_stands():
    source = builtin_programs()["grpo"].read_text()

    assert source[source.index("import flowrl") :] in README


def excerpt(shown, printed):
    """Return the lines of what is printed that begin as those shown, cut where those are cut."""
    rest, lines = iter(printed.splitlines()), []
    for line in filter("...".__ne__, shown.splitlines()):
        found, *left_out = reversed([*until(rest, line)])
        lines += ["..."] if left_out else []
        lines.append(cut(found) if line.endswith(" ...") else found)
    return "\n".join([*lines, *(["..."] if any(rest) else []), ""])


def until(lines, wanted):
    """Yield lines up to one with the first two words of the wanted one."""
    for line in lines:
        yield line
        if line.split()[:2] == wanted.split()[:2]:
            return


def cut(line):
    return f"{line[: line.rindex(' ', 0, 112)]} ..."


def test_it_shows_parts_of_what_is_printed():
    """`pytest --inline-snapshot=fix` writes them anew, and `...` for what is left out."""
    page = README
    for begin, golden in GOLDEN.items():
        (shown,) = [block for block in BLOCKS if block.startswith(begin)]
        page = page.replace(shown, excerpt(shown, (ROOT / golden).read_text()))

    assert page == external_file("../README.md", format=".txt")


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
