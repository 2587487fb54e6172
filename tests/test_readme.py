"""README.md says what is."""

from pathlib import Path

import pytest

from flowrl.config.programs import builtin_programs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_it_shows_grpo_as_it_stands():
    source = builtin_programs()["grpo"].read_text()

    assert source[source.index("import flowrl") :] in README


def test_it_shows_the_golden_graph():
    assert f"```\n{(ROOT / 'tests/programs/grpo.ir').read_text()}```" in README


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
