"""Runs whose reward a server gives."""

import itertools

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import RewardError, RunFileError
from flowrl.report.check import checked
from tests.train.conftest import REWARD

NAMES: dict[str, object] = {}
exec(REWARD, NAMES)
SENT = '{ completions = "completions", answer = "answer" }'


def vowels(body):
    """Return what the function of the same name gives."""
    return {"rewards": NAMES["vowels"](body["completions"], body["answer"])}


def busy_once():
    """Return what answers as `vowels`, but for the second request that comes."""
    numbers = itertools.count(1)
    return lambda body: (503, {}, b"") if next(numbers) == 2 else vowels(body)


def table(server, **keys):
    given = "".join(f", {key} = {value}" for key, value in ({"send": SENT} | keys).items())
    return f'[reward]\nreward = {{ http = "{server.url}"{given} }}'


def metrics(records):
    return [
        {n: x for n, x in r.items() if not n.startswith("seconds") and "retries" not in n}
        for r in records
    ]


def test_a_run_by_a_server_is_that_by_a_function(serve, folder):
    server = serve(busy_once())

    there = folder.run("grpo", "train.steps=2", reward=table(server, batch=8))

    here = folder.run("grpo", "train.steps=2", "train.folder=here", reward=FUNCTION)
    assert metrics(there) == metrics(here)
    assert sum(record["reward/reward/retries"] for record in there) == 1
    assert len(server.asked) == 2 * (16 // 8) + 1


FUNCTION = '[reward]\nreward = "reward.py:vowels"'


def test_a_group_without_an_answer_is_dropped_and_counted(serve, folder):
    server = serve(lambda body: (400, {}, b"") if "a" in body["answer"] else vowels(body))
    dropping = table(server).replace("[reward]", '[reward]\non_reward_error = "drop_group"')

    records = folder.run("grpo", "train.steps=2", reward=dropping)

    assert [record["reward/errors"] for record in records] == [4, 0]


def test_a_session_scores_by_a_server(serve, folder):
    server = serve(lambda body: [float(len(text)) for text in body["prompts"]])

    with fl.session(rewards={"length": {"http": server.url}}) as session:
        policy = session.model("policy", str(folder.model))
        prompts = session.prompts(["a:", "bcd:"])
        _, rewards = ops.score("length", ops.generate(policy, prompts, n=2))

    assert rewards.data.values.tolist() == [2.0, 2.0, 4.0, 4.0]
    with pytest.raises(fl.FlowrlError, match=r"`length\.batch` must be >= 1: 0"):
        fl.session(rewards={"length": {"http": server.url, "batch": 0}})


def test_a_server_that_is_not_there_ends_the_run_before_its_first_step(serve, folder):
    server = serve()
    server.shutdown()
    server.server_close()

    with pytest.raises(RewardError, match="the server of the reward `reward`, can't be reached"):
        folder.run("grpo", reward=table(server))

    assert not (folder.path / "out" / "metrics.jsonl").exists()


def test_a_judge_in_the_run_file_is_checked_without_asking_it(folder):
    judge = '[reward]\nreward = { http = "http://no.invalid/v1", kind = "chat", template = "{t}" }'

    def said(text, *sets):
        path = folder.write("grpo", reward=judge.replace("{t}", text))
        with pytest.raises(RunFileError) as caught:
            checked(path, sets)
        return str(caught.value)

    sound = folder.write("grpo", reward=judge.replace("{t}", "{completion}"))
    assert checked(sound, ()).startswith("`run.toml` and its program `grpo` are sound.")
    found = [
        said("Good?"),
        said("{completion}", "reward.reward.time_limt=3"),
        said("{completion}", "reward.reward.batch=3"),
        said("{completion}", "reward.reward.concurrency=0"),
        said("{completion}", "reward.reward.kind=openai"),
        said("{completion}", "reward.reward.function=reward.py:vowels"),
        said("{completion}", "reward.reward=ftp://host"),
    ]
    assert "\n\n".join(found) == snapshot("""\
`reward.reward.template` must have `{completion}` in it
  run.toml:18
   18 | reward = { http = "http://no.invalid/v1", kind = "chat", template = "Good?" }
                                                                 ^^^^^^^^

unknown key `time_limt` in [reward.reward] (did you mean `time_limit`?)
  --set reward.reward.time_limt=3
help: the keys of [reward.reward] are http, kind, model, template, send, scores, pattern, extra_body, api_key_env, batch, concurrency, time_limit, retries

`reward.reward.batch` must be 1 for kind "chat": a judge is asked one at a time
  --set reward.reward.batch=3

`reward.reward.concurrency` must be >= 1: 0
  --set reward.reward.concurrency=0

`reward.reward.kind` must be one of "json", "chat", "classify", "pooling", "score"; got "openai"
  --set reward.reward.kind=openai

`reward.reward` names both a server and a function
  run.toml:18
   18 | reward = { http = "http://no.invalid/v1", kind = "chat", template = "{completion}" }
                   ^^^^
  --set reward.reward.function=reward.py:vowels
help: leave one of them out; two rewards have two names

`reward.reward.http` must be an address such as `http://host:8000/path`: `ftp://host`
  --set reward.reward=ftp://host\
""")
