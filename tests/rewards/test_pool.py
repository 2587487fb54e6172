import os

import psutil
import pytest
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.spec import RewardSpec
from tests.rewards.processes import FAULTY, workers_of

pytestmark = pytest.mark.processes


def length(prompts, completions):
    return [len(completion) for completion in completions]


def test_scores_are_in_the_order_of_the_completions(write, pool, rows):
    write(
        "def f(prompts, completions, answer):\n  return [float(c) + a for c, a in zip(completions, answer)]"
    )
    numbers = list(range(10))

    scored = pool("rewards.py:f", workers=2, batch=3).score(
        "reward", rows(10, answer=[100] * 10), [str(n) for n in numbers]
    )

    assert scored.values == [100.0 + n for n in numbers]
    assert scored.failures == []


@pytest.mark.parametrize(
    "fault",
    ["raise", "sys.exit", "GeneratorExit", "os._exit", "abort", "None", "nan", "text", "object"],
)
def test_a_fault_costs_the_score_of_its_completion_alone(fault, write, pool, rows):
    write(FAULTY)
    completions = ["a", "bb", fault, "True", "ccc"]

    scored = pool("rewards.py:score", workers=2).score("reward", rows(5), completions)

    assert scored.values == [1.0, 2.0, None, 1.0, 3.0]
    (failure,) = scored.failures
    assert failure.index == 2
    assert f"{failure.kind}: {failure.text}" == EXPECTED[fault]


EXPECTED = snapshot(
    {
        "raise": "exception: raised KeyError: 'x7'",
        "sys.exit": "exception: raised SystemExit: 4",
        "GeneratorExit": "exception: raised GeneratorExit",
        "os._exit": "exception: ended its process (exit code 3)",
        "abort": "exception: ended its process (SIGSEGV)",
        "None": "not_a_number: returned None",
        "nan": "not_a_number: returned nan",
        "text": "wrong_type: returned str ('0.5') where a number belongs",
        "object": "wrong_type: returned module (<module 'sys' (built-in)>) where a number belongs",
    }
)


@pytest.mark.parametrize("fault", ["loop", "backtrack", "sleep"])
def test_a_call_past_its_time_limit_is_killed_and_the_workers_are_as_many_as_before(
    fault, write, pool, rows
):
    write(FAULTY)
    opened = pool("rewards.py:score", workers=2, batch=1, time_limit=3.0)
    before = workers_of(psutil.Process())

    scored = opened.score("reward", rows(4), ["a", fault, "bb", "ccc"])

    assert scored.values == [1.0, None, 2.0, 3.0]
    assert [(f.index, f.kind, f.text) for f in scored.failures] == snapshot(
        [(1, "timeout", "did not return within 3 s")]
    )
    assert scored.counts("reward")["reward/timeouts"] == 1.0
    after = workers_of(psutil.Process())
    assert len(before) == len(after) == 2
    assert any(not process.is_running() for process in before)
    assert opened.score("reward", rows(1), ["dddd"]).values == [4.0]


def test_scores_do_not_depend_on_the_number_of_workers(write, pool, rows):
    write(FAULTY)
    completions = ["a", "raise", "bb", "None", "os._exit", "ccc", "short"] * 3

    one, three = (
        pool("rewards.py:score", workers=count, batch=4).score("reward", rows(21), completions)
        for count in (1, 3)
    )

    assert one == three


def test_rewards_of_several_names_are_scored_apart(write, tmp_path, rows):
    write(
        "def f(completions, scale): return [scale] * len(completions)\ndef g(prompts): return [0.5]"
    )
    specs = {
        "format": RewardSpec("rewards.py:f", options={"scale": 2.0}),
        "length": RewardSpec("rewards.py:g"),
    }

    with RewardPool(specs, folder=tmp_path) as opened:
        scores = [opened.score(name, rows(1), ["a"]).values for name in specs]

        assert scores == [[2.0], [0.5]]
        with pytest.raises(RewardError) as caught:
            opened.score("lenght", rows(1), ["a"])
    assert str(caught.value) == snapshot("""\
there is no reward `lenght` (did you mean `length`?)
help: the rewards are `format`, `length`\
""")


ROUTED = """
def double(completions, answer): return [2.0 * a for a in answer]
def count(completions): return [len(completions)] * len(completions)
"""


def test_a_column_picks_among_functions_and_each_sees_its_own_rows(write, pool, rows):
    write(ROUTED)
    functions = {
        "math": "rewards.py:double",
        "code": "rewards.py:count",
        "here": lambda prompts: [7],
    }
    opened = pool(functions, by="source", batch=2)
    data = rows(5, source=["math", "code", "here", "code", "code"], answer=[4.0, 0, 0, 0, 0])

    scored = opened.score("reward", data, [""] * 5)

    assert scored.values == [8.0, 2.0, 7.0, 2.0, 1.0]
    assert opened.routes.needs == {"source": "the reward `reward`"}


def test_rows_are_checked_before_anything_is_called(write, pool, rows):
    write(ROUTED)
    opened = pool({"math": "rewards.py:double", "code": "rewards.py:count"}, by="source")
    faulty = [
        rows(2, source=["code", "coed"]),
        rows(2, source=["code", "math"]),
        rows(1, answer=[1.0]),
    ]

    messages = []
    for data in faulty:
        with pytest.raises(RewardError) as caught:
            opened.routes.check(data)
        messages.append(str(caught.value))

    assert "\n\n".join(messages) == snapshot("""\
no reward function goes by `source` = 'coed' (did you mean `code`?)
  data.jsonl:2 (row 1)
help: the known ones are 'math', 'code'

the reward function `rewards.py:double` needs the column `answer`, which the row lacks
  data.jsonl:2 (row 1)
help: add `answer` to the row, or leave the row out

the reward picks its function by the column `source`, which the row lacks
  data.jsonl:1 (row 0)
help: add `source` to the row, or leave the row out\
""")


def test_a_worker_that_died_between_calls_costs_no_score(write, pool, rows):
    write(FAULTY)
    opened = pool("rewards.py:score")
    (worker,) = workers_of(psutil.Process())
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)  # all threads, and its connection

    scored = opened.score("reward", rows(1), ["a"])

    assert (scored.values, scored.recovered) == ([1.0], 0)


def test_a_missing_column_is_an_error_before_anything_is_called(write, pool, rows):
    write("def f(completions, answer): raise SystemExit")
    opened = pool("rewards.py:f")
    data = [*rows(2, answer=["1", "2"]), *rows(3)[2:]]

    assert opened.routes.needs == {"answer": "the reward `reward`"}
    with pytest.raises(RewardError) as caught:
        opened.score("reward", data, ["", "", ""])
    assert str(caught.value) == snapshot("""\
the reward function `rewards.py:f` needs the column `answer`, which the row lacks
  data.jsonl:3 (row 2)
help: add `answer` to the row, or leave the row out\
""")


def test_a_function_that_cannot_be_imported_is_an_error_at_the_start(write, pool):
    write(
        "import os\ndef f(completions): ...\nif 'FLOWRL_REWARD_WORKER' in os.environ: os._exit(7)"
    )
    write("def f(completions): ...", "other.py")

    with pytest.raises(
        RewardError, match=r"importing `rewards\.py:f` ended its process \(exit code 7\)"
    ):
        pool("rewards.py:f")
    with pytest.raises(RewardError, match="no function `ff` \\(did you mean `f`\\?\\)"):
        pool("other.py:ff")
    assert workers_of(psutil.Process()) == []


def test_importing_a_function_has_a_time_limit_of_its_own(write, pool, monkeypatch):
    write(
        "import os, time\ndef f(completions): ...\nif 'FLOWRL_REWARD_WORKER' in os.environ: time.sleep(99)"
    )
    monkeypatch.setattr("flowrl.rewards.process.START_LIMIT", 1.0)

    with pytest.raises(RewardError) as caught:
        pool("rewards.py:f")

    assert str(caught.value) == snapshot("""\
importing `rewards.py:f` did not return within 1 s
help: move slow imports and loading into the function\
""")
    assert workers_of(psutil.Process()) == []


def test_a_column_that_a_text_of_the_run_would_hide_is_refused(write, pool, rows):
    write("def f(prompts, completions): return [1.0]")
    opened = pool("rewards.py:f")

    with pytest.raises(RewardError) as caught:
        opened.routes.check(rows(1, completions=["a"]))

    assert str(caught.value) == snapshot("""\
the data have a column `completions`, but the `completions` that the reward function `rewards.py:f` takes are the texts of the run
  data.jsonl:1 (row 0)
help: give the column another name\
""")
    opened.routes.check(rows(1, prompts=["prompt 0"]))  # the prompt's own column


def test_a_file_that_starts_a_run_when_imported_is_refused(write, pool):
    write("""
from pathlib import Path
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.spec import RewardSpec
def f(completions): ...
RewardPool({"reward": RewardSpec("rewards.py:f")}, folder=Path(__file__).parent)
""")

    with pytest.raises(RewardError, match="starts a run when it is imported"):
        pool("rewards.py:f")


def test_columns_that_cannot_be_sent_are_an_error_and_the_pool_goes_on(write, pool, rows):
    write("def f(completions, answer=None): return [1.0] * len(completions)")
    opened = pool("rewards.py:f", workers=2, batch=1)

    with pytest.raises(RewardError, match=r"the columns of data\.jsonl:2 cannot be sent"):
        opened.score("reward", rows(2, answer=["1", lambda: 0]), ["a", "b"])

    assert opened.score("reward", rows(1), ["a"]).values == [1.0]


def test_prints_go_to_standard_error(write, pool, rows, capfd):
    write("import os\ndef f(completions):\n  print('seen'); os.system('echo heard'); return [1.0]")

    assert pool("rewards.py:f").score("reward", rows(1), ["a"]).values == [1.0]

    out, err = capfd.readouterr()
    assert out == ""
    assert err == "seen\nheard\n"


def test_an_importable_callable_is_sent_by_name_and_another_is_called_here(pool, rows):
    here = os.getpid()

    sent = pool(length)
    kept = pool(lambda completions: [os.getpid() - here] * len(completions))

    assert sent.score("reward", rows(1), ["abc"]).values == [3.0]
    assert kept.score("reward", rows(1), ["abc"]).values == [0.0]
    assert workers_of(psutil.Process()) != []


def test_without_workers_every_function_is_called_here(pool, rows, write):
    write("import os\n\ndef pid(completions):\n    return [os.getpid()] * len(completions)\n")
    before = workers_of(psutil.Process())

    named = pool("rewards.py:pid", workers=0)
    given = pool(length, workers=0)

    assert named.score("reward", rows(1), ["abc"]).values == [os.getpid()]
    assert given.score("reward", rows(1), ["abc"]).values == [3.0]
    assert workers_of(psutil.Process()) == before


def test_a_callable_called_here_is_checked_the_same(pool, rows):
    def reward(completions, scale):
        if "raise" in completions:
            raise ValueError("no")
        return [scale] * len(completions)

    scored = pool(reward, options={"scale": 2}).score("reward", rows(3), ["a", "raise", "b"])

    assert scored.values == [2.0, None, 2.0]
    assert scored.failures[0].text == "raised ValueError: no"


def test_a_worker_imports_no_torch(write, pool, rows):
    write("import sys\ndef f(completions): return ['torch' in sys.modules]")

    assert pool("rewards.py:f").score("reward", rows(1), ["a"]).values == [0.0]


def test_interrupts_of_the_keyboard_do_not_reach_a_function(write, pool, rows):
    write(
        "import os, signal\ndef f(completions):\n  os.kill(os.getpid(), signal.SIGINT); return [1.0]"
    )

    assert pool("rewards.py:f").score("reward", rows(1), ["a"]).values == [1.0]
