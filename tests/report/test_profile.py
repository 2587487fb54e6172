"""`flowrl profile`: what it says, what it writes, what it refuses."""

import re
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.target import Profile
from flowrl.errors import DataError, FlowrlError
from flowrl.report.profile import profile_text
from tests.train.conftest import folder, make_model, model  # noqa: F401

ON_CPU = ('cluster.machines="1xCPU"', "workload.response_tokens=6")


def test_measured_work_stands_beside_what_was_predicted(folder, tmp_path):  # noqa: F811
    said = []

    text = profile_text(folder.write("grpo"), ON_CPU, 1, tmp_path / "profile.json", said.append)
    shown = re.sub(r" +[\d.]+ m?s\b", " TIME", text).replace(str(tmp_path), "TMP")

    assert re.sub(r"have [\d.]+ tokens", "have N tokens", shown) == snapshot("""\
grpo on 1xCPU: 1 step, after 1 to warm up
work      on   predicted  measured
generate  CPU TIME TIME
logprobs  CPU TIME TIME
update    CPU TIME TIME
a step takes TIME; TIME of it are no model's
responses have N tokens on average: `[workload] response_tokens` is what plans go by
TMP/profile.json: plan by `[workload] profile` or `--profile TMP/profile.json`\
""")
    assert said == snapshot(
        ["`policy` samples with the tensors that train: no weights move", "train.jsonl: 8 rows"]
    )
    assert Profile.load(tmp_path / "profile.json") != Profile()


@pytest.mark.parametrize(
    ("steps", "out", "message"),
    [
        (
            0,
            "profile.json",
            snapshot("""\
`--steps 0` must be above 0
help: measure 3 or more\
"""),
        ),
        (
            1,
            "/nowhere/profile.json",
            snapshot("""\
`/nowhere/profile.json` can't be written: No such file or directory
help: name a file in a folder that exists: `--out profile.json`\
"""),
        ),
        (
            1,
            "/",
            snapshot("""\
`/` can't be written: it is a folder
help: name a file in a folder that exists: `--out profile.json`\
"""),
        ),
    ],
)
def test_what_can_not_be_measured_or_written_is_refused_before_it_runs(steps, out, message):
    with pytest.raises(FlowrlError) as refused:
        profile_text("no such file.toml", (), steps, Path(out), print)

    assert str(refused.value) == message


def test_a_disk_that_is_full_when_all_is_measured_is_told(folder, tmp_path):  # noqa: F811
    (tmp_path / "full").symlink_to("/dev/full")

    with pytest.raises(DataError, match="full` can't be written: No space left on device"):
        profile_text(folder.write("sft"), ON_CPU, 1, tmp_path / "full", str)
