"""The passes in `docs/compiler.md`."""

from pathlib import Path

from inline_snapshot import external_file

from flowrl.compiler.pipeline import PASSES
from flowrl.report.passes import BEGIN, END, with_passes

ROOT = Path(__file__).parents[2]
FILE = str(ROOT / "examples" / "plan" / "grpo.toml")


def test_the_document_shows_the_passes_as_they_are_and_as_they_print():
    """`pytest --inline-snapshot=fix` writes it anew."""
    document = (ROOT / "docs" / "compiler.md").read_text()

    assert with_passes(document, FILE) == external_file("../../docs/compiler.md", format=".txt")


def test_every_pass_says_what_it_requires_and_ensures():
    text = with_passes(f"before {BEGIN} {END} after", FILE)

    sections = text.split("### ")[1:]
    named = {section.partition("`\n")[0].strip("`"): section for section in sections}
    assert {step.__name__ for step in PASSES} <= set(named)
    assert all("**Requires**" in its and "**Ensures**" in its for its in named.values())


def test_what_is_written_by_hand_stays():
    text = with_passes(f"before {BEGIN} old {END} after", FILE)

    assert text.startswith(f"before {BEGIN}\n```\ngrpo on 8xH100")
    assert text.endswith(f"{END} after")
    assert "old" not in text.partition("## Passes")[0].partition("```")[0]
