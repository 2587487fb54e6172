from pathlib import Path

import pytest
from inline_snapshot import snapshot

from flowrl.config.toml.source import Source
from flowrl.errors import FlowrlError
from flowrl.report.options import settings


def test_lengths_on_the_command_line():
    assert settings(None, "256:600") == snapshot(
        ("workload.prompt_tokens=256", "workload.response_tokens=600")
    )
    assert settings("8xH100", "100/200:600/2048") == snapshot(
        (
            'cluster.machines="8xH100"',
            "workload.prompt_tokens={ mean = 100, max = 200 }",
            "workload.response_tokens={ mean = 600, max = 2048 }",
        )
    )
    with pytest.raises(FlowrlError) as refused:
        settings(None, "many")
    assert str(refused.value) == snapshot("""\
`--lengths many` gives no lengths
help: write those of prompts and responses: `256:600`, or `256:600/2048` at most\
""")


def test_what_options_give_may_have_quotes_and_backslashes(tmp_path):
    (tmp_path / "run.toml").touch()
    profile = tmp_path / 'a "b"\\tc.json'

    tables = Source.read(tmp_path / "run.toml", settings('8x"H100"', None, profile)).tables()

    assert tables["cluster"]["machines"] == '8x"H100"'
    assert tables["workload"]["profile"] == str(profile)


def test_options_are_laid_over_a_table_that_a_set_replaces(tmp_path):
    (tmp_path / "run.toml").write_text('cluster.machines = "1xH200"')
    sets = ("cluster={ pools = { all = { gpus = 8 } } }", "workload={ rounds = 2 }")

    options = settings("8xH100", "256:600", tmp_path / "profile.json", sets)

    assert Source.read(tmp_path / "run.toml", options).tables() == {
        "cluster": {"pools": {"all": {"gpus": 8}}, "machines": "8xH100"},
        "workload": {
            "rounds": 2,
            "profile": str(tmp_path / "profile.json"),
            "prompt_tokens": 256,
            "response_tokens": 600,
        },
    }


@pytest.mark.parametrize(
    "given",
    [
        'cluster.machines="1xH200"',
        'cluster={ machines = "1xH200" }',
        'workload.profile="other.json"',
        "workload={ prompt_tokens = 5 }",
        "workload.response_tokens.mean=5",
    ],
)
def test_what_an_option_and_a_set_both_give_is_an_error(given):
    with pytest.raises(FlowrlError) as refused:
        settings("8xH100", "256:600", Path("profile.json"), ("train.steps=1", given))

    assert str(refused.value) == BOTH[given]


BOTH = snapshot(
    {
        'cluster.machines="1xH200"': """\
`--cluster` and a `--set` both give `cluster.machines`
  --set cluster.machines="1xH200"
help: leave one of them out\
""",
        'cluster={ machines = "1xH200" }': """\
`--cluster` and a `--set` both give `cluster.machines`
  --set cluster={ machines = "1xH200" }
help: leave one of them out\
""",
        'workload.profile="other.json"': """\
`--profile` and a `--set` both give `workload.profile`
  --set workload.profile="other.json"
help: leave one of them out\
""",
        "workload={ prompt_tokens = 5 }": """\
`--lengths` and a `--set` both give `workload.prompt_tokens`
  --set workload={ prompt_tokens = 5 }
help: leave one of them out\
""",
        "workload.response_tokens.mean=5": """\
`--lengths` and a `--set` both give `workload.response_tokens`
  --set workload.response_tokens.mean=5
help: leave one of them out\
""",
    }
)
