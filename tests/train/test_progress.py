"""What a run shows."""

import math
import os
import pty
import subprocess
import sys

from inline_snapshot import snapshot

from flowrl.runtime.executor import Step
from flowrl.train.progress import Progress, progress, step_line

SECONDS = {"generate": 1.5, "reward": 0.001, "update": 0.499}


def line(metrics, number=10, steps=100, elapsed=30.0, seconds=SECONDS):
    return step_line(number, steps, Step({}, metrics, seconds, sum(seconds.values())), elapsed)


def test_a_line_has_reward_loss_kl_speed_phases_and_time_left():
    metrics = {
        "policy/loss": -0.05,
        "policy/kl": 0.00123,
        "policy/kl_old": 0.5,
        "critic/loss": 7.0,
        "reward": 0.25,
        "tokens/sampled": 4000.0,
    }

    assert line(metrics) == snapshot(
        "step 10/100 | reward 0.250 | loss -0.0500 | kl 0.0012 | 2,000 tokens/s | 2.00 s (generate 1.50, update 0.50) | ETA 4:30"
    )


def test_a_line_leaves_out_what_a_program_does_not_have():
    assert line({"policy/loss": 2.0}, seconds={"update": 0.001}) == snapshot(
        "step 10/100 | loss 2.0000 | 0.00 s | ETA 4:30"
    )
    assert line({}, number=100, elapsed=7300) == snapshot(
        "step 100/100 | 2.00 s (generate 1.50, update 0.50) | ETA 0:00"
    )


def test_a_line_says_that_a_step_has_no_reward():
    assert line({"reward": math.nan, "policy/loss": 0.0}).startswith(
        "step 10/100 | no reward | loss 0.0000 | "
    )


def test_hours_are_written_as_minutes():
    assert line({}, number=1, steps=101, elapsed=59.5).endswith("ETA 99:10")


def test_plain_lines_are_few_but_notes_and_the_last_step_stay(capsys):
    with progress(100, "plain") as show:
        show.note("before")
        for number in range(1, 101):
            show.step(number, Step({}, {}, SECONDS, 2.0))

    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "before"
    assert printed[-1].startswith("step 100/100")
    assert len(printed) < 10


def test_off_a_terminal_lines_are_plain(capsys):
    with progress(1, "auto") as show:
        show.note("[data] is shown as it is")

    assert capsys.readouterr().out == "[data] is shown as it is\n"


def test_each_step_that_is_done_shortens_the_time_left():
    lines = []
    show = Progress(4, lambda text, stays: lines.append((text, stays)))

    show.begin()
    for number in range(1, 5):
        show.step(number, Step({}, {}, SECONDS, 2.0))

    assert [stays for _, stays in lines] == [False, False, False, True]
    assert lines[-1][0].endswith("ETA 0:00")


LIVE = """
from flowrl.runtime.executor import Step
from flowrl.train.progress import progress
with progress(3, "auto") as show:
    show.note("[eval] is text, not markup")
    for number in (1, 2, 3):
        show.step(number, Step({}, {"reward": number / 4}, {"update": 0.5}, 0.5))
"""


def test_on_a_terminal_the_line_is_live():
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", LIVE], stdout=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = bytearray()
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)

    assert child.wait() == 0
    text = shown.decode()
    assert "[eval] is text, not markup" in text
    assert "reward 0.750" in text
    assert "\x1b[?25l" in text
    assert "\x1b[?25h" in text
