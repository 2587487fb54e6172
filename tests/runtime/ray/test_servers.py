"""A reward that a server gives, asked from a worker of Ray."""

import pytest

from tests.runtime.ray.conftest import POOLS, known
from tests.train.test_servers import FUNCTION, busy_once, metrics, table

pytestmark = pytest.mark.usefixtures("kept")


def test_a_run_by_a_server_is_that_by_a_function_in_one_process(serve, heldout):
    server = serve(busy_once())

    there = heldout.run("grpo", "train.steps=2", reward=table(server, batch=8), added=POOLS)

    local = ("train.folder=here", "cluster.executor=local")
    here = heldout.run("grpo", "train.steps=2", *local, reward=FUNCTION, added=POOLS)
    assert metrics(map(known, there)) == metrics(map(known, here))
    assert sum(record["reward/reward/retries"] for record in there) == 1
    assert len(server.asked) == 2 * (16 // 8) + 1
