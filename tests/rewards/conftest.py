import pytest

from flowrl.rewards.pool import RewardPool
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.rows import Row


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
