"""Rewards from a server that does well, late, badly or not at all."""

import threading
import time
from collections import Counter

import pytest
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scoring import score_function
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
from tests.rewards.servers import dying, endless, lengths


def texts(count):
    return ["x" * i for i in range(count)]


def failures(scored, server):
    """Return what failed, by index; the server's port is a free one."""
    assert {f.giver for f in scored.failures} <= {f"server `{server.url}`"}
    return [
        (f.index, f.kind, f.text.replace(str(server.server_port), "PORT")) for f in scored.failures
    ]


def test_requests_are_of_batch_completions_and_scores_in_their_order(serve, asking, rows):
    server = serve()

    scored = asking(server, batch=4).score("judge", rows(10), texts(10))

    assert scored.values == [float(i) for i in range(10)]
    assert sorted(len(body["prompts"]) for body in server.asked) == [2, 4, 4]
    assert scored.counts("judge")["reward/judge/retries"] == 0


def test_a_slow_server_is_asked_several_things_at_once_and_no_more(serve, asking, rows):
    together, lock, now, most = threading.Barrier(3), threading.Lock(), Counter(), []

    def slow(body):
        with lock:
            now["open"] += 1
            most.append(now["open"])
        together.wait(timeout=60)  # nobody is answered before three have asked
        with lock:
            now["open"] -= 1
        return lengths(body)

    server = serve(slow)

    scored = asking(server, batch=1, concurrency=3).score("judge", rows(9), texts(9))

    assert scored.values == [float(i) for i in range(9)]
    assert max(most) == 3


def test_answers_that_overtake_one_another_keep_their_places(serve, asking, rows):
    def later_first(body):
        time.sleep(0.2 if body["completions"] == [""] else 0)
        return lengths(body)

    scored = asking(serve(later_first), batch=1).score("judge", rows(4), texts(4))

    assert scored.values == [0.0, 1.0, 2.0, 3.0]


def test_any_text_arrives_as_it_is(serve, asking, rows):
    completions = ["grün 🙂 \u2028", 'a"\\\n\x00', "\ud800", "日本"]
    server = serve()

    scored = asking(server).score("judge", rows(4), completions)

    assert server.asked[0]["completions"] == completions
    assert scored.values == [float(len(text)) for text in completions]


@pytest.mark.parametrize(
    "passing",
    [
        lambda: (503, {"Retry-After": 0}, b"busy"),
        lambda: (429, {}, b"slow down"),
        lambda: (502, {}, b""),
        lambda: (503, {"Content-Encoding": "gzip"}, b"busy"),
        lambda: (503, {"Content-Length": 10**6}, dying()),
        lambda: (503, {}, endless()),
        lambda: (200, {"Content-Encoding": "gzip"}, {"rewards": [0.0, 1.0]}),
        lambda: b"<html><title>Starting</title>",
        lambda: b'{"rewards": [0.0,',
        lambda: (204, {}, b""),
        lambda: dying(),
        lambda: time.sleep(4.0),
    ],
    ids=[
        *("503", "429", "502", "503 packed", "503 broken", "503 endless"),
        *("packed", "page", "half", "nothing", "dies", "slow"),
    ],
)
def test_what_passes_is_asked_again_and_counted(passing, serve, asking, rows):
    server = serve(lambda body: passing() if len(server.asked) == 1 else lengths(body))

    scored = asking(server, time_limit=3.0).score("judge", rows(2), texts(2))

    assert scored.values == [0.0, 1.0]
    assert scored.counts("judge") == {
        "reward/errors": 0.0,
        "reward/timeouts": 0.0,
        "reward/recovered": 0.0,
        "reward/judge/retries": 1.0,
    }


def test_a_server_is_waited_for_as_long_as_it_asks_but_not_for_ever(
    serve, asking, rows, monkeypatch
):
    for module in ("client", "server"):
        monkeypatch.setattr(f"flowrl.rewards.{module}.LONGEST_PAUSE", 0.1)
    busy = (429, {"Retry-After": 3600}, b"")
    server = serve(lambda body: busy if len(server.asked) == 1 else lengths(body))

    scored = asking(server, time_limit=30.0).score("judge", rows(1), ["abc"])

    assert scored.values == [3.0]


@pytest.mark.parametrize(
    "pause", ["0.1", "-5", "nan", "soon", "Mon, 99 Foo 9999", "Mon, 30 Nov 0000"]
)
def test_a_pause_that_is_no_whole_number_or_date_is_no_reason_to_give_up(
    pause, serve, asking, rows
):
    busy = (429, {"Retry-After": pause}, b"")
    server = serve(lambda body: busy if len(server.asked) == 1 else lengths(body))

    scored = asking(server).score("judge", rows(1), ["abc"])

    assert (scored.values, scored.retries) == ([3.0], 1)


@pytest.mark.parametrize("fault", ["503", "502", "429", "dies", "slow"])
def test_what_does_not_pass_costs_the_scores_of_its_request_alone(fault, serve, asking, rows):
    def of(body):
        if "xx" not in body["completions"]:
            return lengths(body)
        time.sleep(4.0 if fault == "slow" else 0)
        said = {"503": b"still\n  loading", "502": endless(), "429": b""}
        return (int(fault), {}, said[fault]) if fault in said else dying()

    server = serve(of)

    scored = asking(server, batch=2, time_limit=3.0).score("judge", rows(6), texts(6))

    assert scored.values == [0.0, 1.0, None, None, 4.0, 5.0]
    assert failures(scored, server)[0] == EXPECTED[fault]
    assert len(server.asked) == 4  # none of the two is asked for alone
    assert scored.counts("judge")["reward/judge/retries"] == 1


EXPECTED = snapshot(
    {
        "503": (2, "unanswered", "answered 503 Service Unavailable in 2 attempts: still loading"),
        "502": (2, "unanswered", "answered 502 Bad Gateway in 2 attempts: down"),
        "429": (2, "unanswered", "answered 429 Too Many Requests in 2 attempts"),
        "dies": (
            2,
            "unanswered",
            "gave no answer in 2 attempts: IncompleteRead(16 bytes read, 999984 more expected)",
        ),
        "slow": (2, "unanswered", "gave no answer in 2 attempts: nothing within 3 s"),
    }
)


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_request_that_is_refused_is_repeated_completion_by_completion(
    status, serve, asking, rows
):
    said = {"error": {"message": "5000 tokens are too many"}}
    server = serve(lambda b: (status, {}, said) if "xx" in b["completions"] else lengths(b))

    scored = asking(server, batch=3).score("judge", rows(6), texts(6))

    assert scored.values == [0.0, 1.0, None, 3.0, 4.0, 5.0]
    assert [(index, kind) for index, kind, _ in failures(scored, server)] == [(2, "refused")]
    assert "5000 tokens are too many" in scored.failures[0].text
    assert scored.counts("judge")["reward/judge/retries"] == 0


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
def test_a_status_that_no_sample_is_to_blame_for_ends_the_run_under_any_policy(
    status, serve, asking, rows
):
    server = serve(lambda body: (status, {"Location": "/elsewhere"}, b"no"))
    opened = asking(server, batch=1, concurrency=1)

    with pytest.raises(RewardError, match=rf"answered {status} .*: no"):
        score_function(opened, "drop_group")(["judge"], rows(4), texts(4), [0] * 4, 0, {})

    assert len(server.asked) == 1


NO_JSON = {
    "html": b"<!doctype html>\n<title>Welcome</title>",
    "empty": b"",
    "latin": "grün".encode("latin-1"),
    "packed": (200, {"Content-Encoding": "gzip"}, b'{"rewards": [1.0, 2.0]}'),
}


@pytest.mark.parametrize("name", NO_JSON)
def test_what_is_no_json_to_the_last_attempt_ends_the_run_under_any_policy(
    name, serve, asking, rows
):
    server = serve(lambda body: NO_JSON[name])

    with pytest.raises(RewardError) as caught:
        score_function(asking(server), "score_zero")(["judge"], rows(2), texts(2), [0, 1], 0, {})

    assert str(caught.value).replace(str(server.server_port), "PORT") == TOLD[name]
    assert len(server.asked) == 2


TOLD = snapshot(
    {
        "html": """\
the reward server `http://127.0.0.1:PORT/score` answered 200 OK in 2 attempts with what is no JSON: <!doctype html> <title>Welcome</title>
  data.jsonl:1 (row 0), sample 0, step 1, the first of the call
help: look at what answers there: the server, or what stands before it, such as a proxy or a login page\
""",
        "empty": """\
the reward server `http://127.0.0.1:PORT/score` answered 200 OK in 2 attempts with what is no JSON: nothing
  data.jsonl:1 (row 0), sample 0, step 1, the first of the call
help: look at what answers there: the server, or what stands before it, such as a proxy or a login page\
""",
        "latin": """\
the reward server `http://127.0.0.1:PORT/score` answered 200 OK in 2 attempts with what is no JSON: gr�n
  data.jsonl:1 (row 0), sample 0, step 1, the first of the call
help: look at what answers there: the server, or what stands before it, such as a proxy or a login page\
""",
        "packed": """\
the reward server `http://127.0.0.1:PORT/score` answered 200 OK in 2 attempts with what can't be unpacked as gzip: {"rewards": [1.0, 2.0]}
  data.jsonl:1 (row 0), sample 0, step 1, the first of the call
help: look at what answers there: the server, or what stands before it, such as a proxy or a login page\
""",
    }
)

UNREADABLE = {
    "other key": {"score": [1.0]},
    "number": 3,
    "text": {"rewards": "good"},
    "texts": {"rewards": ["0.5", "1"]},
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_answer_without_scores_ends_the_run_under_any_policy(name, serve, asking, rows):
    server = serve(lambda body: UNREADABLE[name])

    with pytest.raises(RewardError) as caught:
        score_function(asking(server), "score_zero")(["judge"], rows(2), texts(2), [0, 1], 0, {})

    assert str(caught.value).splitlines()[0].replace(str(server.server_port), "PORT") == SAID[name]
    assert len(server.asked) == 1


SAID = snapshot(
    {
        "other key": "the reward server `http://127.0.0.1:PORT/score` answered without `rewards`: {'score': [1.0]}",
        "number": "the reward server `http://127.0.0.1:PORT/score` answered without `rewards`: 3",
        "text": "the reward server `http://127.0.0.1:PORT/score` returned str ('good'), not a list of 2 numbers",
        "texts": "the reward server `http://127.0.0.1:PORT/score` returned str ('0.5') where a number belongs",
    }
)


def test_scores_that_are_no_numbers_and_too_few_fail_as_those_of_a_function(serve, asking, rows):
    def of(body):
        length = len(body["completions"][0])
        return {"rewards": {1: [float("nan")], 2: [], 3: [None], 4: [1, 2]}.get(length, [1.0])}

    server = serve(of)

    scored = asking(server, batch=1).score("judge", rows(6), texts(6))

    assert scored.values == [1.0, None, None, None, None, 1.0]
    assert failures(scored, server) == snapshot(
        [
            (1, "not_a_number", "returned nan"),
            (2, "wrong_count", "returned 0 scores for 1 completion"),
            (3, "not_a_number", "returned None"),
            (4, "wrong_count", "returned 2 scores for 1 completion"),
        ]
    )


def test_a_server_that_dies_half_way_is_named_with_the_row(serve, asking, rows):
    server = serve()
    opened = asking(server, batch=2, concurrency=1)

    def once(body):
        if len(server.asked) == 1:
            return lengths(body)
        server.shutdown()
        server.server_close()
        return dying()

    server.answer = once

    with pytest.raises(RewardError) as caught:
        score_function(opened, "fail")(["judge"], rows(8), texts(8), [0, 1] * 4, 4, {})

    said = str(caught.value).replace(str(server.server_port), "PORT")
    assert said == snapshot("""\
the reward server `http://127.0.0.1:PORT/score` gave no answer in 2 attempts: [Errno 111] Connection refused
  data.jsonl:3 (row 2), sample 0, step 5, the first of the call
help: look at the server; if it was only busy, raise `time_limit` or `retries`, or lower `concurrency` or `batch`; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")


def test_under_fail_nothing_is_asked_after_the_first_failure(serve, asking, rows):
    server = serve(lambda body: (503, {}, b""))

    scored = asking(server, batch=1, concurrency=2, retries=0).score(
        "judge", rows(50), texts(50), "fail"
    )

    assert len(scored.failures) == 1
    assert len(server.asked) <= 3


def test_an_answer_that_trickles_in_for_ever_is_given_up(serve, asking, rows):
    given_up = threading.Event()

    def trickle():
        while not given_up.wait(0.02):
            yield b" "

    server = serve(lambda body: trickle())

    scored = asking(server, time_limit=2.0, retries=0).score("judge", rows(2), ["a", "b"])
    given_up.set()

    assert failures(scored, server) == snapshot(
        [(0, "unanswered", "did not end its answer"), (1, "unanswered", "did not end its answer")]
    )


def test_functions_and_servers_give_rewards_of_one_pool(serve, tmp_path, rows):
    specs = {
        "length": RewardSpec(lambda completions: [len(text) for text in completions]),
        "judge": ServerSpec(serve(lambda body: [0.5] * len(body["completions"])).url),
    }

    with RewardPool(specs, folder=tmp_path) as pool:
        scores = score_function(pool, "fail")(
            ["judge", "length"], rows(2), ["a", "bb"], [0, 1], 0, {}
        )
        with pytest.raises(RewardError, match="the rewards are `length`, `judge`"):
            pool.score("jugde", rows(1), ["a"])

    assert scores.values == [[0.5, 0.5], [1.0, 2.0]]
    assert scores.counts["reward/judge/retries"] == 0.0


def test_columns_that_are_sent_are_needed(serve, asking, rows):
    server = serve(lambda body: body["labels"])
    opened = asking(server, send={"query": "texts", "labels": "answer"})

    assert opened.routes.needs == {"answer": "the reward `judge`"}
    with pytest.raises(RewardError) as caught:
        opened.routes.check(rows(1))
    assert str(caught.value).replace(str(server.server_port), "PORT") == snapshot("""\
the reward server `http://127.0.0.1:PORT/score` needs the column `answer`, which the row lacks
  data.jsonl:1 (row 0)
help: add `answer` to the row, or leave the row out\
""")
    assert opened.score("judge", rows(2, answer=[3, 4]), ["a", "b"]).values == [3.0, 4.0]
    assert server.asked == [{"query": ["prompt 0a", "prompt 1b"], "labels": [3, 4]}]


def test_a_column_that_json_has_nothing_for_is_an_error_with_its_row(serve, asking, rows):
    server = serve()
    opened = asking(server, send={"completions": "completions", "level": "level"})

    for level in (float("nan"), object):
        with pytest.raises(RewardError, match=r"the columns of data\.jsonl:1 cannot be sent"):
            opened.score("judge", rows(1, level=[level]), ["a"])

    assert server.asked == []
