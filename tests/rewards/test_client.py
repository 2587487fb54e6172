"""Opening a server: what is said if it isn't there, or wants a key."""

import socket

import pytest
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.scoring import score_function
from flowrl.rewards.server import ServerSpec
from tests.rewards.servers import Handler


@pytest.fixture
def refused(serve, asking):
    """Return what is said of a server that can't be opened."""

    def message(server, **spec):
        with pytest.raises(RewardError) as caught:
            asking(server, **spec)
        return str(caught.value).replace(server.url.partition("/score")[0][-5:], "PORT")

    return message


@pytest.fixture
def guarded(serve, monkeypatch):
    """A server that answers only to the key `abc`."""

    def do_get(self):
        wrong = self.headers["Authorization"] != "Bearer abc"
        status, body = (401, f"wrong key {self.headers['Authorization']}") if wrong else (405, "")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    monkeypatch.setattr(Handler, "do_GET", do_get, raising=False)
    return serve()


def test_a_server_that_is_not_there_is_an_error_before_anything_is_generated(serve, refused):
    server = serve()
    server.shutdown()
    server.server_close()

    assert refused(server) == snapshot("""\
`http://127.0.0.1:PORT/score`, the server of the reward `judge`, can't be reached: [Errno 111] Connection refused
help: start it, or fix `http` in [reward.judge]\
""")


def test_a_host_that_has_no_address_is_an_error(serve, asking):
    server = serve()
    server.url = "http://no-such-host.invalid/score"

    with pytest.raises(RewardError, match=r"`http://no-such-host\.invalid/score`.* reached"):
        asking(server)


def test_a_server_that_takes_the_connection_and_says_nothing_is_an_error(serve, refused):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = serve()
        server.url = f"http://127.0.0.1:{silent.getsockname()[1]}/score"

        assert refused(server, time_limit=0.2) == snapshot("""\
`http://127.0.0.1:PORT/score`, the server of the reward `judge`, can't be reached: nothing within 0.2 s
help: start it, or fix `http` in [reward.judge]\
""")


def test_a_key_that_the_environment_lacks_is_an_error(guarded, refused, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)

    assert refused(guarded, api_key_env="JUDGE_KEY") == snapshot("""\
the environment has no `JUDGE_KEY`, which `api_key_env` of [reward.judge] names
help: set it where the run starts; with `executor = "ray"`, where Ray starts\
""")


def test_a_key_is_sent_as_a_bearer_token(guarded, asking, rows, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "abc\n")

    scored = asking(guarded, api_key_env="JUDGE_KEY").score("judge", rows(1), ["abcd"])

    assert scored.values == [4.0]
    assert guarded.headers[0]["Authorization"] == "Bearer abc"


@pytest.mark.parametrize("key", ["abc\ndef", "abç"])
def test_a_key_that_no_header_can_have_is_an_error_that_does_not_show_it(
    key, guarded, refused, monkeypatch
):
    monkeypatch.setenv("JUDGE_KEY", key)

    assert refused(guarded, api_key_env="JUDGE_KEY") == snapshot("""\
the key in `JUDGE_KEY`, which `api_key_env` of [reward.judge] names, has characters that a header can't have
help: look for line breaks, and for letters that aren't ASCII\
""")


def test_a_key_that_is_refused_is_an_error_that_does_not_show_it(guarded, refused, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "xyz")

    assert refused(guarded, api_key_env="JUDGE_KEY") == snapshot("""\
`http://127.0.0.1:PORT/score`, the server of the reward `judge`, answered 401 Unauthorized: wrong key Bearer ***
help: look at the key in `JUDGE_KEY`\
""")
    assert refused(guarded) == snapshot("""\
`http://127.0.0.1:PORT/score`, the server of the reward `judge`, answered 401 Unauthorized: wrong key None
help: name a key: `api_key_env`\
""")


def test_a_key_that_an_answer_repeats_is_not_shown(serve, asking, rows, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "xyz")
    opened = asking(serve(lambda body: (403, {}, b"xyz is out of credit")), api_key_env="JUDGE_KEY")

    with pytest.raises(RewardError, match=r"answered 403 Forbidden: \*\*\* is out of credit"):
        score_function(opened, "fail")(["judge"], rows(1), ["a"], [0], 0, {})


def test_a_proxy_of_the_environment_is_asked(serve, asking, rows, monkeypatch):
    proxy = serve()
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", proxy.url)
    behind = ServerSpec("http://behind.invalid/score")
    server = serve()
    server.url = behind.http

    assert asking(server).score("judge", rows(1), ["abc"]).values == [3.0]
    assert (len(proxy.asked), len(server.asked)) == (1, 0)


def test_a_request_has_the_model_and_what_else_is_asked_for(serve, asking, rows):
    def of(body):
        asked = body["messages"][0]["content"]
        return {"choices": [{"message": {"content": f"score: {len(asked)}"}}]}

    judge = serve(of)
    opened = asking(
        judge,
        kind="chat",
        model="big",
        template="{prompt}|{completion}",
        pattern=r"score: (\d+)",
        extra_body={"temperature": 0, "stop": ["\n"]},
    )

    assert opened.score("judge", rows(1), ["abc"]).values == [len("prompt 0|abc")]
    assert judge.asked == snapshot(
        [
            {
                "messages": [{"role": "user", "content": "prompt 0|abc"}],
                "model": "big",
                "temperature": 0,
                "stop": ["\n"],
            }
        ]
    )
