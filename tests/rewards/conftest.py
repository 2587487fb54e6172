import pytest

from flowrl.rewards.pool import RewardPool
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.rows.rows import Row
from tests.rewards.servers import Server, lengths


@pytest.fixture
def write(tmp_path):
    """Write a file of reward functions and return its folder."""

    def write(text, name="rewards.py"):
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


@pytest.fixture
def pool(tmp_path):
    """Start a pool of one reward, `reward`; it is closed when the test ends."""
    opened = []

    def start(function, workers=1, **spec):
        specs = {"reward": RewardSpec(function, **spec)}
        opened.append(RewardPool(specs, workers=workers, folder=tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def rows():
    """Make rows whose columns are the given lists."""

    def rows(count, **columns):
        return [
            Row(i, f"data.jsonl:{i + 1}", f"prompt {i}", {n: v[i] for n, v in columns.items()})
            for i in range(count)
        ]

    return rows


@pytest.fixture
def serve(monkeypatch):
    """Start a server that answers as a function says; it ends with the test."""
    monkeypatch.setenv("no_proxy", "*")
    opened = []

    def start(answer=lengths):
        opened.append(Server(answer))
        return opened[-1]

    yield start
    for server in opened:
        server.shutdown()
        server.server_close()


@pytest.fixture
def asking(tmp_path):
    """Open a pool of one reward, `judge`, that a server gives; it is closed when the test ends."""
    opened = []

    def start(server, **spec):
        spec = ServerSpec(server.url, **{"retries": 1} | spec)
        opened.append(RewardPool({"judge": spec}, folder=tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
