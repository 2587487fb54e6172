"""What is printed to a reader that has stopped, and to a disk that is full."""

import io
import os
import sys

import pytest
from inline_snapshot import snapshot

from flowrl.errors import RunFileError
from flowrl.stdout import tell
from tests.train.conftest import folder, make_model, model  # noqa: F401


@pytest.fixture
def unread(monkeypatch):
    """Let nobody read what is printed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        yield


def test_what_nobody_reads_is_no_error(unread):
    for _ in range(3):
        tell("a line")


def test_a_run_goes_on_when_nobody_reads_what_it_prints(folder, unread):  # noqa: F811
    folder.run("sft")

    assert [record["step"] for record in folder.records()] == [1, 2, 3]


def test_a_letter_that_the_terminal_lacks_is_printed_as_its_number(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "latin-1"))

    tell("checkpoint: /runs/größe/模型")

    assert printed.getvalue().decode("latin-1") == "checkpoint: /runs/größe/\\u6a21\\u578b\n"


def test_what_is_sent_to_a_full_disk_is_an_error(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(RunFileError) as refused:
            tell("a line")

    assert str(refused.value) == snapshot("""\
can't print: No space left on device
help: make room where it goes, or send it elsewhere\
""")
